//! Members in buckets of a real server, with a proxy between that counts and lies.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a test")]

mod budget;
mod faults;
mod kept;
mod locked;
mod named;
mod others;
mod outputs;
mod overlay;
mod prefetch;
#[cfg(any(feature = "azure", feature = "gcp"))]
mod providers;
mod refused;
mod rules;
mod support;
#[cfg(feature = "gcp")]
mod xml_front;
