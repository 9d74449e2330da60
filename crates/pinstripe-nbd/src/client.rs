//! One connection, from the greeting to the last reply.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::Scope;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{Shutdown, shutdown};

use super::carry::Carrier;
use super::export::{Event, Export};
use super::inbox::Inbox;
use super::memory::{Buffer, Memory, Share};
use super::outbox::{Outbox, Packet};
use super::pace::Pace;
use super::queue::{Job, Queue};
use super::server::Settings;
use crate::protocol::{
    Command, Form, Handshake, OPTION_BYTES_MAX, OptionHead, REQUEST_BYTES, REQUEST_BYTES_MAX,
    Request, Step, Terms, greeting,
};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;

/// Replies that are gathered while more requests are in the inbox.
const GATHERED: usize = 32;
/// The payload of a refused write that is skipped; a larger one ends the connection.
const SKIPPED_BYTES_MAX: u32 = 2 * REQUEST_BYTES_MAX;
/// The bytes of a refused option that are skipped.
const OPTION_SKIPPED_MAX: u32 = 1 << 20;

/// The values that all connections share.
pub(super) struct House<'a> {
    pub exports: &'a [Export],
    pub settings: &'a Settings,
    pub monitor: &'a Monitor,
    pub memory: Arc<Memory>,
    /// Set when the server ends, for whatever reason; then no more requests are received.
    pub is_ending: AtomicBool,
}

/// A connection that has chosen its export.
struct Client<'a> {
    socket: &'a OwnedFd,
    terms: Terms,
    carrier: Carrier<'a>,
    workers: usize,
    share: Arc<Share>,
    pace: Pace,
    queue: Queue,
    outbox: Outbox<'a>,
}

impl House<'_> {
    /// Serves one client until it disconnects or violates the protocol.
    ///
    /// # Errors
    /// The violation, or an error of its socket.
    pub fn serve(&self, socket: &OwnedFd) -> Result<()> {
        let mut inbox = Inbox::new(socket, &self.is_ending);
        inbox.expect_within(self.settings.handshake)?;
        let patience = Some(self.settings.patience);
        set_socket_timeout(socket, Timeout::Send, patience)
            .map_err(|errno| Error::io("cannot set a limit", "a socket", errno))?;
        let Some((export, terms)) = self.shake_hands(socket, &mut inbox)? else { return Ok(()) };
        inbox.be_patient(self.settings.patience)?;
        export.note(Event::Connected);
        let form = if terms.is_structured { Form::Structured } else { Form::Simple };
        let client = Client {
            socket,
            terms,
            carrier: Carrier { export, form, monitor: self.monitor, is_ending: &self.is_ending },
            workers: self.settings.workers.max(1),
            share: self.memory.share(),
            pace: Pace::default(),
            queue: Queue::default(),
            outbox: Outbox::new(socket),
        };
        let result = std::thread::scope(|scope| {
            let result = client.listen(scope, inbox);
            client.queue.close();
            result
        });
        client.outbox.flush();
        export.note(Event::Disconnected);
        result
    }

    fn shake_hands(
        &self,
        socket: &OwnedFd,
        inbox: &mut Inbox<'_>,
    ) -> Result<Option<(&Export, Terms)>> {
        let offers = self.exports.iter().map(Export::offer).collect::<Result<Vec<_>>>()?;
        let say = |bytes: Vec<u8>| {
            let outbox = Outbox::new(socket);
            outbox.put(Packet::Short(bytes));
            outbox.flush();
        };
        say(greeting().to_vec());
        let Some(flags) = inbox.take()? else { return Ok(None) };
        let mut handshake = Handshake::new(&offers, flags)?;
        while let Some(head) = inbox.take()? {
            let head = OptionHead::decode(&head)?;
            let mut data = None;
            if head.bytes <= OPTION_BYTES_MAX {
                let data = data.insert(vec![0; head.bytes as usize]);
                inbox.fill(data)?;
            } else if head.bytes <= OPTION_SKIPPED_MAX {
                inbox.skip(head.bytes.into())?;
            } else {
                return Err(too_much("an option", OPTION_SKIPPED_MAX, head.bytes));
            }
            let mut reply = Vec::new();
            let step = handshake.answer(head, data.as_deref(), &mut reply);
            say(reply);
            match step {
                Step::More => {}
                Step::Begin(at, terms) => return Ok(Some((&self.exports[at], terms))),
                Step::End => return Ok(None),
            }
        }
        Ok(None)
    }
}

impl Client<'_> {
    /// Receives requests until the client disconnects.
    fn listen<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        mut inbox: Inbox<'_>,
    ) -> Result<()> {
        let mut workers = 0;
        loop {
            // Flush replies before blocking on the socket: the client may wait for them before it
            // sends more.
            if !inbox.holds(REQUEST_BYTES) {
                self.outbox.flush();
            }
            let Some(bytes) = inbox.take()? else { return Ok(()) };
            let request = Request::decode(&bytes)?;
            if request.command == Command::Disconnect {
                return Ok(());
            }
            if let Err(number) = request.check(&self.terms) {
                if request.payload() > SKIPPED_BYTES_MAX {
                    return Err(too_much("a write", REQUEST_BYTES_MAX, request.len));
                }
                inbox.skip(request.payload().into())?;
                self.outbox.put(self.carrier.refuse(&request, number));
                continue;
            }
            let moves = matches!(request.command, Command::Read | Command::Write);
            let mut buffer = moves.then(|| self.take(request.len as usize));
            if let Some(buffer) = buffer.as_mut().filter(|_| request.command == Command::Write) {
                if !inbox.holds(request.len as usize) {
                    self.outbox.flush(); // For the same reason.
                }
                inbox.fill(buffer.data_mut())?;
            }
            let job = Job { request, buffer };
            // In this thread if a hand-over would cost more than the request. Such replies are
            // gathered: one system call sends many.
            if self.pace.is_quick(&request) {
                if self.outbox.put(self.carry(job)) >= GATHERED {
                    self.outbox.flush();
                }
            } else if self.queue.push(job) && workers < self.workers {
                let worker = std::thread::Builder::new().name("nbd".to_owned());
                let started = worker.spawn_scoped(scope, || self.work());
                workers += usize::from(started.is_ok());
                // Without any worker the job would stay in the queue; with one, it only waits
                // longer.
                if let Err(error) = started
                    && workers == 0
                {
                    return Err(Error::io("cannot start a thread", "a client", error));
                }
            }
        }
    }

    /// Memory for a request. Queued replies hold some of it, so they are sent before waiting for
    /// more.
    fn take(&self, bytes: usize) -> Buffer {
        self.share.try_take(bytes).unwrap_or_else(|| {
            self.outbox.flush();
            self.share.take(bytes)
        })
    }

    /// The body of a thread that carries out requests.
    fn work(&self) {
        let _guard = Panicked(self.socket);
        while let Some(job) = self.queue.next() {
            self.outbox.put(self.carry(job));
            self.outbox.flush();
        }
    }

    fn carry(&self, job: Job) -> Packet {
        let request = job.request;
        self.pace.measure(&request, || self.carrier.carry(job))
    }
}

/// Disconnects a client when a worker panics, since one of its requests will never be answered.
struct Panicked<'a>(&'a OwnedFd);

impl Drop for Panicked<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = shutdown(self.0, Shutdown::Both);
        }
    }
}

fn too_much(what: &str, most: u32, found: u32) -> Error {
    Error::new(Kind::Corrupt, format!("{what} of a client is far too long")).expected(most, found)
}
