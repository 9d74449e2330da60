//! Links what developers build at fixed addresses. The tests start that program thousands of times, and
//! relocating 120,000 pointers takes a third of the page faults of a start; what is shipped stays a
//! position-independent executable.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "cargo and a build script talk by environment and standard output"
)]

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| var(name).is_ok_and(|it| it == value);
    if is("PROFILE", "debug") && is("CARGO_CFG_TARGET_OS", "linux") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
