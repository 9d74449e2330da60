//! Opens an array in this process and closes it cleanly, or reaches the process that has it open.

use std::path::PathBuf;
use std::sync::Arc;

use super::assemble::assemble;
use super::controller::{ArrayController, ControlHandler};
use super::detail::{self, Detail};
use super::devices;
use super::register::Metadata;
use super::request::{Reply, Request};
use super::{Register, md};
use crate::volume::{Volume, VolumeSettings};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_io::control::{Client, Peer};
use pinstripe_io::fault::Plan;

/// The process in which an array is open.
pub enum Reached {
    /// The array is open in the process that serves it.
    There(Client),
    /// The array is open in this process, until it is closed.
    Here(Box<dyn ControlHandler>),
}

impl Reached {
    /// Sends a request to the array, in whichever process it is open.
    ///
    /// # Errors
    /// Fails with the reason why the request failed; fails also when the process that serves the
    /// array does not answer.
    pub fn ask(&mut self, request: &Request) -> Result<Reply> {
        match self {
            Reached::Here(controller) => controller.answer(request),
            Reached::There(client) => {
                send(client, request)?;
                next(client)
            }
        }
    }

    /// The present state of the array.
    ///
    /// # Errors
    /// Fails with the errors of [`ask`](Self::ask).
    pub fn detail(&mut self) -> Result<Detail> {
        match self.ask(&Request::Detail)? {
            Reply::Detail(detail) => Ok(*detail),
            _ => Err(unexpected()),
        }
    }

    /// Whether another process serves the array, and continues to do so.
    pub fn is_served(&self) -> bool {
        matches!(self, Reached::There(_))
    }

    /// Closes an array that was opened in this process. Returns the state of the array after that:
    /// a member that cannot write the last superblock has failed.
    ///
    /// # Errors
    /// Fails with the reason why not everything was written.
    pub fn close(self) -> Result<Option<Detail>> {
        match self {
            Reached::There(_) => Ok(None),
            Reached::Here(controller) => controller.close().map(|()| Some(controller.detail())),
        }
    }
}

/// Sends a request.
///
/// # Errors
/// Fails with the errors of the connection.
pub fn send(client: &mut Client, request: &Request) -> Result<()> {
    client.ask(&serde_json::to_string(request).expect("a request is plain text"))
}

/// The next reply.
///
/// # Errors
/// Fails with the error that the other process returned; with the errors of the connection.
pub fn next(client: &mut Client) -> Result<Reply> {
    match serde_json::from_str(&client.line()?) {
        Ok(Reply::Failed(failure)) => Err(failure.into_error()),
        Ok(reply) => Ok(reply),
        Err(_) => Err(unexpected()),
    }
}

fn unexpected() -> Error {
    Error::new(Kind::Unsupported, "the process that serves the array sent an unknown answer")
        .advice(
            "the serving process runs a different version of pinstripe: stop that process, and \
             serve the array with this version",
        )
}

const PEER: Peer = Peer {
    name: "the process that serves the array",
    advice: "check with 'pinstripe array status' whether the array is still served, then try again",
    silence: Kind::Io,
};

/// The process that serves an array, if one does. It must answer each request within four times the
/// deadline of a device.
///
/// # Errors
/// Fails with [`Kind::NotFound`] for an unknown name.
pub fn server(name: &str, register: &Register) -> Result<Option<Client>> {
    register.read(name)?;
    let client = Client::connect(&register.socket(name)?, PEER)?;
    if let Some(client) = &client {
        client.set_timeout(Some(devices::answer_timeout()))?;
    }
    Ok(client)
}

/// Connects to the process that serves an array, or opens the array in this process.
///
/// # Errors
/// Fails with the errors of [`assemble`].
pub fn reach(name: &str, register: &Register, faults: &Plan, monitor: &Monitor) -> Result<Reached> {
    if let Some(client) = server(name, register)? {
        return Ok(Reached::There(client));
    }
    let controller: Box<dyn ControlHandler> = match register.read(name)? {
        entry if entry.metadata == Metadata::Md => {
            Box::new(md::open(&entry, false, faults, monitor)?)
        }
        _ => Box::new(start(name, register, faults, monitor)?),
    };
    Ok(Reached::Here(controller))
}

/// Assembles an array in pinstripe's format from its registered devices, and starts it.
///
/// # Errors
/// Fails with the errors of [`assemble`] and [`Volume::start`].
pub fn start(
    name: &str,
    register: &Register,
    faults: &Plan,
    monitor: &Monitor,
) -> Result<ArrayController> {
    let none: [PathBuf; 0] = [];
    let flusher = assemble(name, &none, false, register, faults, monitor)?;
    let volume = Arc::new(Volume::start(flusher, VolumeSettings::default())?);
    ArrayController::new(name, volume, register, faults)
}

/// The description of an array: from the process that serves it, or from its superblocks.
///
/// # Errors
/// Fails with the errors of the serving process and those of reading the superblocks.
pub fn inspect(name: &str, register: &Register) -> Result<Detail> {
    match server(name, register)? {
        Some(client) => Reached::There(client).detail(),
        None => detail::of_devices(name, register),
    }
}
