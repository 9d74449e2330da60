//! Remote control of recorders: OSC in UDP packets, with the messages of Ardour and Reaper.
//!
//! Each message is answered with the status of the take; a sender that subscribes gets the status
//! each second. Packets from senders that are not allowed are dropped without being parsed. Memory
//! does not grow with the input: subscribers and answers per second are limited.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::{Stop, wait_readable};
use pinstripe_record::{
    OscMessage, OscValue, RunningTake, TakeOrder, TakePhase, TakeStatus, read_osc, write_osc,
};

use super::senders::Sender;
use super::tell::clock;

/// The largest packet that is read.
const PACKET_BYTES: usize = 8192;
/// The interval at which subscribers get the status.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// The most subscribers. The most subscribers; a new one replaces the one that has been silent for
/// the longest time.
const READERS_MAX: usize = 8;
/// The most answers in a second. The orders in further packets are carried out, but not answered.
const ANSWERS_MAX: u32 = 100;
/// The most streams whose armed state a refresh reports.
const STRIPS_MAX: usize = 512;
/// The index of the argument of `/set_surface` that is the port, counted from 0. The argument may
/// be absent.
const SURFACE_PORT: usize = 6;

/// A socket, which is served until this object is dropped.
pub struct OscRemote {
    /// Where it listens.
    pub address: SocketAddr,
    over: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl OscRemote {
    /// Serves a take at an address, for the senders that are allowed.
    ///
    /// # Errors
    /// Fails with the errors of the system.
    pub fn start(
        take: &Arc<RunningTake>,
        address: SocketAddr,
        senders: &[Sender],
    ) -> Result<OscRemote> {
        let cannot =
            |error| Error::io("cannot listen for OSC messages", address.to_string(), error);
        let socket = UdpSocket::bind(address).map_err(cannot)?;
        socket.set_nonblocking(true).map_err(cannot)?;
        let address = socket.local_addr().map_err(cannot)?;
        let over = Arc::new(Stop::new()?);
        let ended = Arc::clone(&over);
        let mut remote = OscSender {
            socket,
            take: Arc::clone(take),
            senders: senders.to_vec(),
            readers: Vec::new(),
            answers: 0,
            beat: false,
        };
        let thread = Some(std::thread::spawn(move || remote.serve(&ended)));
        Ok(OscRemote { address, over, thread })
    }
}

impl Drop for OscRemote {
    fn drop(&mut self) {
        self.over.set();
        if let Some(thread) = self.thread.take() {
            // It answers and nothing more: its panic would be no reason to fail.
            let _ = thread.join();
        }
    }
}

struct OscSender {
    socket: UdpSocket,
    take: Arc<RunningTake>,
    senders: Vec<Sender>,
    readers: Vec<SocketAddr>,
    /// The number of packets that were answered in this second.
    answers: u32,
    beat: bool,
}

/// What a message requests.
#[derive(Debug, PartialEq)]
enum OscRequest {
    /// An order to the take.
    Order(TakeOrder),
    /// Arms all streams, or disarms all of them if all are armed.
    ToggleAll,
    /// Sends the status now and each second, to another port if one is named.
    Follow(Option<u16>),
    /// Send the status.
    Tell,
    /// A request that is not supported, with a text about what to do instead.
    Refused(&'static str),
}

impl OscSender {
    fn serve(&mut self, over: &Stop) {
        let mut packet = vec![0; PACKET_BYTES];
        let mut next = Instant::now() + TELL_EVERY;
        while !over.is_set() {
            let left = next.saturating_duration_since(Instant::now());
            if wait_readable(&[self.socket.as_fd(), over.as_fd()], Some(left)).is_err() {
                over.wait(TELL_EVERY);
            }
            if Instant::now() >= next {
                next = Instant::now() + TELL_EVERY;
                self.answers = 0;
                self.report_readers();
            }
            match self.socket.recv_from(&mut packet) {
                Ok((length, from)) if may_send(&self.senders, from.ip()) => {
                    self.take_packet(&packet[..length], from);
                }
                // The system reports a subscriber that disconnected as an error: it is not a
                // failure.
                Ok(_) | Err(_) => {}
            }
        }
    }

    fn take_packet(&mut self, packet: &[u8], from: SocketAddr) {
        let Some(messages) = read_osc(packet) else { return };
        let (mut refused, mut is_asked, mut reply_to) = (None, false, from);
        for message in &messages {
            let Some(asked) = meaning(message) else { continue };
            is_asked = true;
            match self.obey(asked, from) {
                Ok(Some(other)) => reply_to = other,
                Ok(None) => {}
                Err(error) => refused = Some(error.to_string()),
            }
        }
        if !is_asked || self.answers >= ANSWERS_MAX {
            return;
        }
        self.answers += 1;
        let status = self.take.status();
        self.report(reply_to, &status);
        if let Some(error) = refused {
            self.send(reply_to, "/pinstripe/error", &[OscValue::Text(&error)]);
        }
        let strips = messages.iter().any(|it| it.address.contains("rec"))
            || messages.iter().any(|it| matches!(it.address, "/refresh" | "/set_surface"));
        if strips {
            self.report_strips(reply_to, &status);
        }
    }

    /// Obeys a request. Carries out a request. Returns the address for the answer, or `None` for
    /// the sender of the message.
    fn obey(&mut self, asked: OscRequest, from: SocketAddr) -> Result<Option<SocketAddr>> {
        match asked {
            OscRequest::Order(order) => self.take.obey(&order).map(|()| None),
            OscRequest::ToggleAll => {
                let status = self.take.status();
                let is_armed = status.armed_streams < status.streams;
                self.take.arm("all", is_armed).map(|()| None)
            }
            OscRequest::Follow(port) => {
                let reader = SocketAddr::new(from.ip(), port.unwrap_or(from.port()));
                self.readers.retain(|it| *it != reader);
                if self.readers.len() >= READERS_MAX {
                    self.readers.remove(0);
                }
                self.readers.push(reader);
                Ok(Some(reader))
            }
            OscRequest::Tell => Ok(None),
            OscRequest::Refused(why) => Err(Error::new(Kind::Refused, why)),
        }
    }

    fn report_readers(&mut self) {
        if self.readers.is_empty() {
            return;
        }
        self.beat = !self.beat;
        let status = self.take.status();
        for reader in &self.readers {
            self.send(*reader, "/heartbeat", &[lamp(self.beat)]);
            self.report(*reader, &status);
        }
    }

    /// Sends the status, in the messages of Ardour, and in pinstripe's own messages where Ardour
    /// has none.
    fn report(&self, to: SocketAddr, status: &TakeStatus) {
        let is_recording = status.phase == TakePhase::Recording;
        let is_armed = status.phase == TakePhase::Armed;
        let time = clock(if is_armed { 0.0 } else { status.elapsed_seconds });
        let frames = status.by_stream.iter().map(|it| it.frames).max().unwrap_or(0).to_string();
        let left = status.left_seconds.unwrap_or(-1.0);
        let lost = status.lost_frames.saturating_add(status.missing_frames);
        let whole = |it: u64| OscValue::Whole(it.min(i64::MAX as u64) as i64);
        for (address, value) in [
            ("/record_tally", lamp(is_recording)),
            ("/rec_enable_toggle", lamp(is_armed || is_recording)),
            ("/transport_play", lamp(is_recording)),
            ("/transport_stop", lamp(!is_recording)),
            ("/session_name", OscValue::Text(&status.take)),
            ("/position/time", OscValue::Text(&time)),
            ("/position/samples", OscValue::Text(&frames)),
            ("/pinstripe/phase", OscValue::Text(&status.phase.to_string())),
            ("/pinstripe/streams", whole(status.armed_streams as u64)),
            ("/pinstripe/left_seconds", OscValue::Real(left)),
            ("/pinstripe/pre_roll_seconds", OscValue::Real(status.pre_roll_seconds)),
            ("/pinstripe/lag_ms", OscValue::Real(status.durable_lag_ms)),
            ("/pinstripe/overruns", whole(status.overruns)),
            ("/pinstripe/lost_frames", whole(lost)),
        ] {
            self.send(to, address, &[value]);
        }
    }

    fn report_strips(&self, to: SocketAddr, status: &TakeStatus) {
        for (number, stream) in (1..).zip(status.by_stream.iter().take(STRIPS_MAX)) {
            let strip = OscValue::Whole(number);
            self.send(to, "/strip/name", &[strip, OscValue::Text(&stream.name)]);
            self.send(to, "/strip/recenable", &[strip, lamp(stream.is_armed)]);
        }
    }

    fn send(&self, to: SocketAddr, address: &str, values: &[OscValue<'_>]) {
        // A packet that is lost is made good by the next: no sender waits for it.
        let _: io::Result<usize> = self.socket.send_to(&write_osc(address, values), to);
    }
}

/// Whether packets from an address are read: this machine and the allowed senders may send.
fn may_send(senders: &[Sender], from: IpAddr) -> bool {
    let from = from.to_canonical();
    from.is_loopback() || senders.iter().any(|it| it.has(from))
}

fn lamp(is_on: bool) -> OscValue<'static> {
    OscValue::Real(if is_on { 1.0 } else { 0.0 })
}

/// The request that a message stands for; `None` for the release of a button and for unknown
/// messages.
fn meaning(message: &OscMessage<'_>) -> Option<OscRequest> {
    let number = |at: usize| match message.values.get(at) {
        Some(OscValue::Whole(it)) => Some(*it as f64),
        Some(OscValue::Real(it)) => Some(*it),
        _ => None,
    };
    let text = match message.values.first() {
        Some(OscValue::Text(text)) => text.to_string(),
        _ => String::new(),
    };
    let path: Vec<&str> = message.address.split('/').skip(1).collect();
    if let ["set_surface", ..] | ["refresh"] = path[..] {
        // Its first value is the size of a bank, 0 for all strips.
        let port = number(SURFACE_PORT).filter(|it| (1.0..65_536.0).contains(it));
        return Some(OscRequest::Follow(port.map(|it| it as u16)));
    }
    let is_let_go = number(0) == Some(0.0);
    // For these, a value of 0 is not the release of a button.
    let arming = match path[..] {
        ["strip", "recenable"] => Some((number(0)?.to_string(), number(1)? != 0.0)),
        ["strip", "recenable", strip] => Some((strip.to_owned(), !is_let_go)),
        ["track", strip, "recarm"] => Some((strip.to_owned(), !is_let_go)),
        ["pinstripe", "arm"] => Some((text.clone(), true)),
        ["pinstripe", "disarm"] => Some((text.clone(), false)),
        _ => None,
    };
    match arming {
        Some((streams, true)) => return Some(OscRequest::Order(TakeOrder::Arm(streams))),
        Some((streams, false)) => return Some(OscRequest::Order(TakeOrder::Disarm(streams))),
        None if is_let_go => return None,
        None => {}
    }
    let order = match path[..] {
        ["transport_play"] | ["play"] | ["record"] | ["pinstripe", "start"] => TakeOrder::Start,
        ["transport_stop"] | ["stop"] | ["pinstripe", "stop"] => TakeOrder::Stop,
        ["add_marker"] | ["pinstripe", "mark"] => TakeOrder::Mark(text),
        ["pinstripe", "split"] => TakeOrder::Split,
        ["toggle_all_rec_enables"] => return Some(OscRequest::ToggleAll),
        ["stop_forget"] => {
            return Some(OscRequest::Refused(
                "a take cannot be removed by remote control: stop the take instead",
            ));
        }
        ["rec_enable_toggle"]
        | ["record_enabled"]
        | ["transport_state"]
        | ["pinstripe", "status"] => {
            return Some(OscRequest::Tell);
        }
        _ => return None,
    };
    Some(OscRequest::Order(order))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(address: &str, values: &[OscValue<'_>]) -> Option<OscRequest> {
        meaning(&OscMessage { address, values: values.to_vec() })
    }

    #[test]
    fn buttons_act_when_they_are_pressed_and_not_when_they_are_let_go() {
        for (address, order) in [
            ("/transport_play", TakeOrder::Start),
            ("/record", TakeOrder::Start),
            ("/transport_stop", TakeOrder::Stop),
            ("/stop", TakeOrder::Stop),
            ("/add_marker", TakeOrder::Mark(String::new())),
            ("/pinstripe/split", TakeOrder::Split),
        ] {
            for pressed in [&[][..], &[OscValue::Real(1.0)], &[OscValue::Whole(1)]] {
                assert_eq!(
                    asked(address, pressed),
                    Some(OscRequest::Order(order.clone())),
                    "{address}"
                );
            }
            assert_eq!(asked(address, &[OscValue::Real(0.0)]), None, "{address}");
            assert_eq!(asked(address, &[OscValue::Whole(0)]), None, "{address}");
        }
        let mark = asked("/add_marker", &[OscValue::Text("refrain")]);
        assert_eq!(mark, Some(OscRequest::Order(TakeOrder::Mark("refrain".to_owned()))));
        assert_eq!(asked("/transport_playing", &[]), None);
        assert_eq!(asked("/strip/gain", &[OscValue::Whole(1), OscValue::Real(0.5)]), None);
    }

    #[test]
    fn this_machine_and_those_who_are_named_may_send_and_no_others() {
        let may = |senders: &[Sender], from: &str| may_send(senders, from.parse().unwrap());
        let named: Vec<Sender> = vec!["10.0.0.0/24".parse().unwrap()];
        for local in ["127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"] {
            assert!(may(&[], local), "{local}");
        }
        assert!(!may(&[], "10.0.0.7") && may(&named, "10.0.0.7") && !may(&named, "10.0.1.7"));
        assert!(may(&named, "::ffff:10.0.0.7") && !may(&named, "fe80::1"));
    }

    #[test]
    fn strips_are_armed_in_the_ways_of_several_remotes() {
        let arm = |it: &str| Some(OscRequest::Order(TakeOrder::Arm(it.to_owned())));
        let disarm = |it: &str| Some(OscRequest::Order(TakeOrder::Disarm(it.to_owned())));
        let (one, zero, three) = (OscValue::Real(1.0), OscValue::Whole(0), OscValue::Whole(3));
        assert_eq!(asked("/strip/recenable", &[three, one]), arm("3"));
        assert_eq!(asked("/strip/recenable", &[OscValue::Real(3.0), zero]), disarm("3"));
        assert_eq!(asked("/strip/recenable/3", &[one]), arm("3"));
        assert_eq!(asked("/track/3/recarm", &[zero]), disarm("3"));
        assert_eq!(asked("/pinstripe/arm", &[OscValue::Text("room mic")]), arm("room mic"));
        assert_eq!(asked("/strip/recenable", &[three]), None, "it does not say which way");
        assert_eq!(asked("/toggle_all_rec_enables", &[one]), Some(OscRequest::ToggleAll));
    }

    #[test]
    fn a_surface_may_name_the_port_at_which_it_listens() {
        let mut values = [OscValue::Whole(0); 7];
        values[0] = OscValue::Whole(8);
        assert_eq!(asked("/set_surface", &values), Some(OscRequest::Follow(None)));
        values[6] = OscValue::Whole(9000);
        assert_eq!(asked("/set_surface", &values), Some(OscRequest::Follow(Some(9000))));
        // Ardour's own surfaces have banks of all strips.
        values[0] = OscValue::Whole(0);
        assert_eq!(asked("/set_surface", &values), Some(OscRequest::Follow(Some(9000))));
        assert_eq!(asked("/set_surface", &values[..1]), Some(OscRequest::Follow(None)));
        values[6] = OscValue::Whole(70_000);
        assert_eq!(asked("/set_surface", &values), Some(OscRequest::Follow(None)));
        assert_eq!(asked("/refresh", &[]), Some(OscRequest::Follow(None)));
    }
}
