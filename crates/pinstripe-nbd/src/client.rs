//! One connection, from the greeting to the last reply.

#![allow(clippy::disallowed_methods, reason = "this module starts the workers of a connection")]

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::Scope;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{Shutdown, shutdown};

use crate::context::ServerContext;
use crate::executor::RequestExecutor;
use crate::export::{Event, Export};
use crate::heuristic::InlineHeuristic;
use crate::memory::{Buffer, Share};
use crate::protocol::{
    Command, Form, Handshake, OPTION_BYTES_MAX, OptionHead, REQUEST_BYTES, REQUEST_BYTES_MAX,
    Request, Step, Terms, greeting,
};
use crate::queue::{Job, Queue};
use crate::receive_buffer::ReceiveBuffer;
use crate::send_queue::{Packet, SendQueue};
use pinstripe_base::error::{Error, Kind, Result};

/// The number of replies that are gathered while more requests are in the receive buffer.
const GATHERED: usize = 32;
/// The largest payload of a refused write that is skipped; a larger one ends the connection.
const SKIPPED_BYTES_MAX: u32 = 2 * REQUEST_BYTES_MAX;
/// The most bytes of a refused option that are skipped.
const OPTION_SKIPPED_MAX: u32 = 1 << 20;

/// A connection whose client has chosen an export.
struct ExportConnection<'a> {
    socket: &'a OwnedFd,
    terms: Terms,
    executor: RequestExecutor<'a>,
    workers_max: usize,
    share: Arc<Share>,
    heuristic: InlineHeuristic,
    queue: Queue,
    replies: SendQueue<'a>,
}

/// Serves one client until it disconnects or violates the protocol, or until the server ends.
///
/// # Errors
/// Fails with the client's violation of the protocol, or an error of its socket.
pub(super) fn serve(context: &ServerContext<'_>, socket: &OwnedFd) -> Result<()> {
    let settings = context.settings;
    let mut incoming = ReceiveBuffer::new(socket, &context.is_ending);
    incoming.set_deadline(settings.handshake_timeout)?;
    set_socket_timeout(socket, Timeout::Send, Some(settings.stall_timeout))
        .map_err(|errno| Error::io("cannot set a socket timeout", "a socket", errno))?;
    let Some((export, terms)) = negotiate(context.exports, socket, &mut incoming)? else {
        return Ok(());
    };
    incoming.set_stall_timeout(settings.stall_timeout)?;
    export.note(Event::Connected);
    let form = if terms.is_structured { Form::Structured } else { Form::Simple };
    let client = ExportConnection {
        socket,
        terms,
        executor: RequestExecutor {
            export,
            form,
            monitor: context.monitor,
            is_ending: &context.is_ending,
        },
        workers_max: settings.workers.max(1),
        share: context.memory.share(),
        heuristic: InlineHeuristic::default(),
        queue: Queue::default(),
        replies: SendQueue::new(socket),
    };
    let result = std::thread::scope(|scope| {
        let result = client.serve_requests(scope, incoming);
        client.queue.close();
        result
    });
    client.replies.flush();
    export.note(Event::Disconnected);
    result
}

/// Negotiates options until the client has chosen an export; returns `None` if the client
/// disconnects before.
fn negotiate<'a>(
    exports: &'a [Export],
    socket: &OwnedFd,
    incoming: &mut ReceiveBuffer<'_>,
) -> Result<Option<(&'a Export, Terms)>> {
    let infos = exports.iter().map(Export::info).collect::<Result<Vec<_>>>()?;
    let say = |bytes: Vec<u8>| {
        let replies = SendQueue::new(socket);
        replies.put(Packet::Short(bytes));
        replies.flush();
    };
    say(greeting().to_vec());
    let Some(flags) = incoming.take()? else { return Ok(None) };
    let mut handshake = Handshake::new(&infos, flags)?;
    while let Some(head) = incoming.take()? {
        let head = OptionHead::decode(&head)?;
        let mut data = None;
        if head.bytes <= OPTION_BYTES_MAX {
            let data = data.insert(vec![0; head.bytes as usize]);
            incoming.fill(data)?;
        } else if head.bytes <= OPTION_SKIPPED_MAX {
            incoming.skip(head.bytes.into())?;
        } else {
            return Err(too_much("an option", OPTION_SKIPPED_MAX, head.bytes));
        }
        let mut reply = Vec::new();
        let step = handshake.answer(head, data.as_deref(), &mut reply);
        say(reply);
        match step {
            Step::More => {}
            Step::Begin(at, terms) => return Ok(Some((&exports[at], terms))),
            Step::End => return Ok(None),
        }
    }
    Ok(None)
}

impl ExportConnection<'_> {
    /// Receives requests and has them carried out, until the client disconnects.
    fn serve_requests<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        mut incoming: ReceiveBuffer<'_>,
    ) -> Result<()> {
        let mut workers = 0;
        while let Some(job) = self.receive(&mut incoming)? {
            self.dispatch(job, scope, &mut workers)?;
        }
        Ok(())
    }

    /// Receives the next request that may be carried out, with its memory and, for a write, its
    /// bytes; refuses invalid requests that come before it. Returns `None` when the client
    /// disconnects.
    fn receive(&self, incoming: &mut ReceiveBuffer<'_>) -> Result<Option<Job>> {
        loop {
            self.flush_unless(incoming.holds(REQUEST_BYTES));
            let Some(bytes) = incoming.take()? else { return Ok(None) };
            let request = Request::decode(&bytes)?;
            if request.command == Command::Disconnect {
                return Ok(None);
            }
            match request.check(&self.terms) {
                Ok(()) => {
                    let buffer = self.receive_payload(&request, incoming)?;
                    return Ok(Some(Job { request, buffer }));
                }
                Err(number) => self.refuse(&request, number, incoming)?,
            }
        }
    }

    /// Takes the memory for a read or write, and receives the bytes of a write.
    fn receive_payload(
        &self,
        request: &Request,
        incoming: &mut ReceiveBuffer<'_>,
    ) -> Result<Option<Buffer>> {
        let bytes = request.len as usize;
        match request.command {
            Command::Read => Ok(Some(self.take(bytes))),
            Command::Write => {
                let mut buffer = self.take(bytes);
                self.flush_unless(incoming.holds(bytes));
                incoming.fill(buffer.data_mut())?;
                Ok(Some(buffer))
            }
            _ => Ok(None),
        }
    }

    fn refuse(
        &self,
        request: &Request,
        number: u32,
        incoming: &mut ReceiveBuffer<'_>,
    ) -> Result<()> {
        if request.payload() > SKIPPED_BYTES_MAX {
            return Err(too_much("a write", REQUEST_BYTES_MAX, request.len));
        }
        incoming.skip(request.payload().into())?;
        self.replies.put(self.executor.refuse(request, number));
        Ok(())
    }

    /// Sends the gathered replies before the reader blocks on the socket, because the client may
    /// wait for them before it sends more.
    fn flush_unless(&self, has_come: bool) {
        if !has_come {
            self.replies.flush();
        }
    }

    /// Carries out a request: in this thread if a hand-over would cost more than the request, else
    /// in a worker. If all workers are busy, another one is started. `workers` counts the workers.
    fn dispatch<'scope>(
        &'scope self,
        job: Job,
        scope: &'scope Scope<'scope, '_>,
        workers: &mut usize,
    ) -> Result<()> {
        if self.heuristic.is_quick(&job.request) {
            // Such replies are gathered: one system call sends many.
            if self.replies.put(self.execute(job)) >= GATHERED {
                self.replies.flush();
            }
        } else if self.queue.push(job) && *workers < self.workers_max {
            let worker = std::thread::Builder::new().name("nbd".to_owned());
            match worker.spawn_scoped(scope, || self.work()) {
                Ok(_) => *workers += 1,
                // Without any worker the job would stay in the queue; with one, it only waits
                // longer.
                Err(error) if *workers == 0 => {
                    return Err(Error::io("cannot start a thread", "a client", error));
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Takes memory for a request. Queued replies hold some of the memory, so they are sent before
    /// this waits for more.
    fn take(&self, bytes: usize) -> Buffer {
        self.share.try_take(bytes).unwrap_or_else(|| {
            self.replies.flush();
            self.share.take(bytes)
        })
    }

    /// The body of a thread that carries out requests.
    fn work(&self) {
        let _guard = DisconnectOnPanic(self.socket);
        while let Some(job) = self.queue.next() {
            self.replies.put(self.execute(job));
            self.replies.flush();
        }
    }

    fn execute(&self, job: Job) -> Packet {
        let request = job.request;
        self.heuristic.measure(&request, || self.executor.execute(job))
    }
}

/// Disconnects a client when a worker panics, since one of its requests will never be answered.
struct DisconnectOnPanic<'a>(&'a OwnedFd);

impl Drop for DisconnectOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = shutdown(self.0, Shutdown::Both);
        }
    }
}

fn too_much(what: &str, most: u32, found: u32) -> Error {
    Error::new(Kind::Corrupt, format!("{what} from a client is too long")).expected(most, found)
}
