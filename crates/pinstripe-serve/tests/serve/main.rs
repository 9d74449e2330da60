//! A server and its clients over loopback.

mod hostile;
mod roles;
mod seam;
mod setup;
