//! Measures a case on several machines: agents measure, and a coordinator starts them together and
//! merges their results.
//!
//! ```text
//! coordinator: Coordinator (a Runner of the engine) --frames with MACs over TCP--> Agent: AgentSession: a Plan
//! ```
//!
//! Invariants: nothing is done for a peer that has not proved that it knows the token; everything
//! that waits for a peer has a deadline; an agent does what its owner has [permitted](Permits) and
//! nothing else. Messages between coordinator and agent are authenticated, but not encrypted.
//!
//! This module prints nothing, and does not know what a case does.

mod agent;
mod clocks;
mod cluster;
mod frame;
mod group;
mod link;
mod merge;
mod message;
mod permits;
mod remote;
mod session;
mod ticks;
mod token;

pub use agent::{Agent, AgentReport};
pub use cluster::{Coordinator, CoordinatorOptions};
pub use frame::{
    ConnectionEnd, FRAME_BYTES, FrameOpener, GREETING_BYTES, Greeting, LENGTH_BYTES, MAC_BYTES,
    SessionKeys,
};
pub use message::{Assignment, decode_answer, decode_ask, encode};
pub use permits::{Permits, PermittedDevice};
pub use token::Token;

#[cfg(test)]
mod tests;
