//! A server of network block devices: any device, for any number of clients at once.
//!
//! ```text
//! accept (caller) -> a reader per connection -> bounded queue -> workers of that connection
//!                        |        |                                      |
//!                        |        +--- answers what is quick -------+    |
//!                        |                                          v    v
//!                        +--- memory of all connections <--- send queue -> socket
//! ```
//!
//! A reader takes all requests that have come from its socket, and takes the memory for each before
//! it queues it, so that every queued request can be carried out. Workers are started only when
//! there is work for them. A reply is added to the send queue; one thread at a time sends all
//! queued replies.
//!
//! Invariants: no request is lost or answered twice, except those of a client that has
//! disconnected; a flush makes durable all writes that were answered before on any connection,
//! because all connections use one device; memory for requests is limited in total, and each
//! connection gets at most its share; a client that neither sends nor receives within the timeouts
//! of the [`Settings`] is disconnected, and so is a client that violates the protocol; other
//! clients are not affected.
//!
//! Not in this crate: access control. A client that can connect to the socket may do everything
//! that the export allows.

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

mod address;
mod client;
mod context;
mod executor;
mod export;
mod fuse;
mod heuristic;
mod limits;
mod memory;
mod protocol;
mod queue;
mod receive_buffer;
mod send_queue;
mod server;
mod settings;

pub use address::Address;
pub use export::{Export, Traffic};
pub use fuse::{DeviceMount, MountOptions};
pub use protocol::{
    ExportInfo, Handshake, OPTION_HEAD_BYTES, OptionHead, REQUEST_BYTES, Request, Step, Terms,
};
pub use server::{Server, serve_socket};
pub use settings::Settings;
