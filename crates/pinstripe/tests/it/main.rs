//! The library as a whole, verb by verb, on real directories: what goes in comes back, whatever
//! happens to the members, the power, the disks and the files in between.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a test")]

mod ahead;
mod away;
mod bases;
mod beside;
mod bulk;
mod catalog;
mod census;
mod chunks;
mod content;
mod crash;
mod cut_off;
mod daily;
mod damage;
mod deleting;
mod faults;
mod forget;
mod full_disks;
mod gc;
mod halves;
mod heartbeats;
mod hostile_members;
mod in_place;
mod linked;
mod lost_pages;
mod made_up;
mod member;
mod members;
mod model;
mod named;
mod resume;
mod rotation;
mod scrub;
mod seal;
mod seams;
mod shown;
mod source;
mod spans;
mod split;
mod strangers;
mod versions;
mod votes;
