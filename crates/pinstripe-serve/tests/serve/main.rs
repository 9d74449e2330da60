//! A server and its clients over loopback.

mod hostile;
mod page;
mod roles;
mod seam;
mod setup;
