//! Agents and coordinators on the loopback, and peers that do not behave.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pinstripe_base::error::{Kind, Result};
use pinstripe_base::sync::{Stop, lock};
use tempfile::TempDir;

use super::frame::{GREETING_BYTES, LENGTH_BYTES, MAC_BYTES, PROTOCOL};
use super::link::{HANDSHAKE, Link};
use super::message::{AgentReply, AgentRequest, Planned, encode};
use super::ticks::nanos;
use super::*;
use crate::result::{Part, Results};
use crate::run::{Effort, Live, Origin, measure_by};

const PROGRAM: &str = "pinstripe 0.0.0";
/// Longer than any test may take.
const LONG: Duration = Duration::from_secs(120);

fn token() -> Token {
    Token::from_bytes(b"0123456789abcdef0123456789abcdef").unwrap()
}

/// An agent in a directory of its own, which is stopped and waited for when this is dropped.
struct Running {
    address: String,
    dir: TempDir,
    stop: Arc<Stop>,
    told: Receiver<AgentReport>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start() -> Running {
        Running::of_patience(HANDSHAKE)
    }

    fn of_patience(handshake: Duration) -> Running {
        let dir = tempfile::tempdir().unwrap();
        let permits = Permits::new(&[dir.path().to_path_buf()], Vec::new(), Vec::new()).unwrap();
        let mut agent = Agent::bind("127.0.0.1:0", token(), permits, PROGRAM).unwrap();
        agent.handshake = handshake;
        let address = agent.address().unwrap().to_string();
        let stop = Arc::new(Stop::new().unwrap());
        let (tell, told) = channel();
        let thread = {
            let (stop, tell) = (Arc::clone(&stop), Mutex::new(tell));
            thread::spawn(move || {
                let told = |told| drop(lock(&tell).send(told));
                agent.serve(&stop, &told).unwrap();
            })
        };
        Running { address, dir, stop, told, thread: Some(thread) }
    }

    fn end(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    fn is_empty(&self) -> bool {
        is_empty(self.dir.path())
    }

    /// The next thing that it says.
    fn said(&self) -> AgentReport {
        self.told.recv_timeout(LONG).unwrap()
    }

    /// Why the next connection that it refuses is refused.
    fn refused(&self) -> String {
        match self.said() {
            AgentReport::Refused { why, .. } => why,
            other => panic!("{other:?}"),
        }
    }

    /// Why the session ended, after it had begun or not.
    fn ended(&self) -> Option<String> {
        loop {
            match self.said() {
                AgentReport::Ended { why, .. } => return why,
                AgentReport::Began { .. } => {}
                AgentReport::Refused { .. } => panic!("refused"),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

fn never() -> &'static Stop {
    Box::leak(Box::new(Stop::new().unwrap()))
}

/// Two variants that are over soon, or never.
fn asked(run_time: &str) -> Assignment {
    let options = [
        ("total-size", "256K"),
        ("files", "2"),
        ("block-size", "4K"),
        ("modes", "rndrd,rndwr"),
        ("run-time", run_time),
    ];
    let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    Assignment {
        case: "fileio".to_owned(),
        options: options.map(own).into(),
        seed: 7,
        ..Assignment::default()
    }
}

fn terms(timeout: Duration) -> CoordinatorOptions {
    CoordinatorOptions { program: PROGRAM.to_owned(), timeout, accepts_noise: true }
}

fn connected(addresses: &[&str], timeout: Duration) -> Result<Coordinator> {
    let addresses: Vec<String> = addresses.iter().map(|it| (*it).to_owned()).collect();
    Coordinator::connect(&addresses, &token(), &asked("0.02"), terms(timeout), never())
}

fn effort() -> Effort {
    let effort = Effort { patience: Duration::ZERO, accepts_noise: true, ..Effort::default() };
    Effort { budget: Duration::MAX, ..effort.exactly(2) }
}

fn measured(cluster: &mut Coordinator, each: &mut dyn FnMut(&Results)) -> Result<Results> {
    let live = Arc::new(Live::new(Arc::default()));
    let origin = Origin { case: "fileio".to_owned(), ..Origin::default() };
    let mut each = |results: &Results| {
        each(results);
        Ok(())
    };
    measure_by(cluster, &effort(), &origin, &live, &mut each)
}

#[test]
fn three_agents_measure_together_and_their_rates_add_up() {
    let agents = [Running::start(), Running::start(), Running::start()];
    let addresses: Vec<&str> = agents.iter().map(|it| it.address.as_str()).collect();
    let mut cluster = connected(&addresses, LONG).unwrap();
    let results = measured(&mut cluster, &mut |_| {}).unwrap();
    assert!(results.is_complete);
    assert_eq!(results.hosts.iter().map(|it| it.address.as_str()).collect::<Vec<_>>(), addresses);
    for (host, agent) in results.hosts.iter().zip(&agents) {
        let clock = host.clock.unwrap();
        assert!(clock.doubt_s > 0.0 && clock.doubt_s <= clock.round_trip_s, "{clock:?}");
        // It is the clock of the same machine; a millisecond for reading it.
        assert!(clock.offset_s.abs() <= clock.doubt_s + 1e-3, "{clock:?}");
        let place = std::fs::canonicalize(agent.dir.path()).unwrap();
        assert_eq!(Path::new(&host.fingerprint.places[0].path), place);
    }
    assert_eq!(results.variants.len(), 2);
    for variant in &results.variants {
        assert!(variant.runs.len() >= 2);
        for run in &variant.runs {
            let parts: Vec<_> = run.parts.iter().map(|it| it.run.as_ref().unwrap()).collect();
            assert_eq!(parts.len(), 3);
            let sum: f64 = parts.iter().map(|it| it.measured.value).sum();
            assert!((run.measured.value - sum).abs() < 1e-9 * sum && sum > 0.0);
            let operations: u64 = parts.iter().map(|it| it.measured.operations).sum();
            assert_eq!(run.measured.operations, operations);
            // None begins before it was agreed, but for what the clocks may be wrong.
            let doubt = run.measured.figures[Part::BEGAN_DOUBT];
            assert!(run.parts.iter().all(|it| it.began_s >= -doubt - 1e-3), "{:?}", run.parts);
        }
    }
    // The seeds differ, and so do what the hosts did; each is a result of its own.
    for host in 0..3 {
        let own = results.of_host(host).unwrap();
        assert_eq!(own.variants[0].runs.len(), results.variants[0].runs.len());
        assert!(own.hosts.is_empty() && own.variants[0].runs[0].parts.is_empty());
    }
    assert_eq!(results.of_host(3), None);
    drop(cluster);
    for agent in &agents {
        assert!(matches!(agent.said(), AgentReport::Began { case, .. } if case == "fileio"));
        assert_eq!(agent.ended(), None);
        assert!(agent.is_empty(), "nothing is left behind");
    }
}

#[test]
fn a_host_that_is_lost_is_named_and_its_part_is_marked() {
    let mut agents = [Running::start(), Running::start(), Running::start()];
    let addresses: Vec<String> = agents.iter().map(|it| it.address.clone()).collect();
    let names: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let mut cluster = connected(&names, LONG).unwrap();
    let mut lose = |_: &Results| agents[1].end();
    let results = measured(&mut cluster, &mut lose).unwrap();
    drop(cluster);
    assert!(!results.is_complete);
    let lost: Vec<_> = results.lost_hosts().map(|(host, _)| host.address.clone()).collect();
    assert_eq!(lost, [addresses[1].clone()]);
    let runs: Vec<_> = results.variants.iter().flat_map(|it| &it.runs).collect();
    assert_eq!(runs.len(), 2, "no run is begun after the one in which it was lost");
    assert!(runs[0].parts.iter().all(|it| it.run.is_some()) && runs[0].is_valid());
    let has: Vec<bool> = runs[1].parts.iter().map(|it| it.run.is_some()).collect();
    assert_eq!(has, [true, false, true]);
    assert!(!runs[1].is_valid(), "the sum of two is no sum of three");
    assert_eq!(runs[1].disturbances[0].kind, Part::HOST_LOST);
    assert!(runs[1].disturbances[0].what.contains(&addresses[1]), "{:?}", runs[1].disturbances);
    assert!(agents.iter().all(Running::is_empty));
}

#[test]
fn an_interrupt_ends_the_runs_of_all_agents_and_leaves_nothing() {
    let agents = [Running::start(), Running::start()];
    let addresses: Vec<String> = agents.iter().map(|it| it.address.clone()).collect();
    let stop: &'static Stop = never();
    let forever = asked("3600");
    let mut cluster =
        Coordinator::connect(&addresses, &token(), &forever, terms(LONG), stop).unwrap();
    let live = Arc::new(Live::new(Arc::clone(stop.as_flag())));
    let results = thread::scope(|scope| {
        let watched = Arc::clone(&live);
        scope.spawn(move || {
            // It moves something, so a run is going on.
            while watched.bytes() < 1 << 20 {
                thread::yield_now();
            }
            stop.set();
        });
        measure_by(&mut cluster, &effort(), &Origin::default(), &live, &mut |_| Ok(())).unwrap()
    });
    assert!(!results.is_complete);
    assert_eq!(results.lost_hosts().count(), 0, "{:?}", results.hosts);
    drop(cluster);
    for agent in &agents {
        assert_eq!(agent.ended(), None);
        assert!(agent.is_empty());
    }
}

/// A coordinator that is not one of ours, but knows the token.
fn coordinator(agent: &Running) -> Link {
    Link::connect(&agent.address, &token()).unwrap()
}

/// What the agent answers, but for its beat.
fn answer(link: &Link) -> AgentReply {
    loop {
        let (payload, _) = link.receive(LONG).unwrap();
        match decode_answer(&payload).unwrap() {
            AgentReply::Alive { .. } => {}
            answer => return answer,
        }
    }
}

fn say(link: &Link, ask: &AgentRequest) -> AgentReply {
    link.send(&encode(ask).unwrap()).unwrap();
    answer(link)
}

fn kind(answer: &AgentReply) -> Kind {
    match answer {
        AgentReply::Failed(failure) => failure.error().kind(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_coordinator_that_goes_away_ends_its_run_and_the_next_one_is_served() {
    let agent = Running::start();
    let link = coordinator(&agent);
    assert!(matches!(say(&link, &AgentRequest::Plan(asked("3600"))), AgentReply::Planned(_)));
    assert!(matches!(say(&link, &AgentRequest::Prepare), AgentReply::Done { .. }));
    assert!(!agent.is_empty(), "files were made");
    assert!(matches!(say(&link, &AgentRequest::Ready { variant: 0 }), AgentReply::Done { .. }));
    let start = AgentRequest::Start { order: 0, at_ns: nanos(Instant::now()), is_warm_up: false };
    link.send(&encode(&start).unwrap()).unwrap();
    // While it measures, another one is told so.
    let other = coordinator(&agent);
    assert_eq!(kind(&answer(&other)), Kind::Busy);
    link.close();
    drop(link);
    loop {
        match agent.said() {
            AgentReport::Ended { why, .. } => {
                assert!(why.is_some());
                break;
            }
            AgentReport::Began { .. } | AgentReport::Refused { .. } => {}
        }
    }
    assert!(agent.is_empty(), "what it made is removed");
    let mut cluster = connected(&[&agent.address], LONG).unwrap();
    assert!(measured(&mut cluster, &mut |_| {}).unwrap().is_complete);
}

#[test]
fn what_is_asked_out_of_turn_or_not_permitted_is_refused_and_harms_nothing() {
    let agent = Running::start();
    let link = coordinator(&agent);
    let start = |at_ns| AgentRequest::Start { order: 0, at_ns, is_warm_up: false };
    for ask in
        [AgentRequest::Prepare, AgentRequest::Ready { variant: 0 }, start(0), AgentRequest::Check]
    {
        assert_eq!(kind(&say(&link, &ask)), Kind::Usage, "{ask:?}");
    }
    let elsewhere = Assignment { dirs: vec!["/".to_owned()], ..asked("0.02") };
    assert_eq!(kind(&say(&link, &AgentRequest::Plan(elsewhere))), Kind::Refused);
    assert!(matches!(say(&link, &AgentRequest::Plan(asked("0.02"))), AgentReply::Planned(_)));
    assert_eq!(kind(&say(&link, &AgentRequest::Plan(asked("0.02")))), Kind::Usage);
    assert_eq!(
        kind(&say(&link, &AgentRequest::Ready { variant: 0 })),
        Kind::Usage,
        "nothing is prepared"
    );
    assert!(matches!(say(&link, &AgentRequest::Prepare), AgentReply::Done { .. }));
    assert_eq!(kind(&say(&link, &AgentRequest::Ready { variant: usize::MAX })), Kind::Usage);
    assert!(matches!(say(&link, &AgentRequest::Ready { variant: 1 }), AgentReply::Done { .. }));
    assert_eq!(kind(&say(&link, &start(u64::MAX))), Kind::Usage, "in a hundred years");
    assert!(matches!(say(&link, &AgentRequest::Clean), AgentReply::Done { .. }));
    assert!(agent.is_empty());
}

#[test]
fn whoever_does_not_know_the_token_gets_nothing_done() {
    let agent = Running::start();
    let other = Token::from_bytes(&[b'x'; 40]).unwrap();
    let addresses = [agent.address.clone()];
    let error =
        Coordinator::connect(&addresses, &other, &asked("0.02"), terms(LONG), never()).err();
    assert_eq!(error.unwrap().kind(), Kind::WrongKey);
    assert!(agent.refused().contains("this peer does not know the token"));
    // Garbage, a greeting of another version.
    let raw = || TcpStream::connect(&agent.address).unwrap();
    let _ = raw().write_all(&[b'x'; 1 << 16]);
    assert!(agent.refused().contains("protocol"));
    let newer = Greeting { version: PROTOCOL + 1, nonce: [1; 32] };
    raw().write_all(&newer.encode()).unwrap();
    assert!(agent.refused().contains("version"));
    // Whoever knows it is served after all of that.
    let mut cluster = connected(&[&agent.address], LONG).unwrap();
    assert!(measured(&mut cluster, &mut |_| {}).unwrap().is_complete);
}

#[test]
fn whoever_says_nothing_or_too_little_is_told_nothing_that_is_made_of_the_token() {
    let agent = Running::of_patience(Duration::from_millis(50));
    let mut silent = TcpStream::connect(&agent.address).unwrap();
    assert!(agent.refused().contains("did not answer in time"));
    assert_eq!(silent.read(&mut [0; 1]).unwrap_or(0), 0, "nothing was said to it");
    let mut curious = TcpStream::connect(&agent.address).unwrap();
    curious.write_all(&Greeting::new([1; 32]).encode()).unwrap();
    let mut said = Vec::new();
    let _ = curious.read_to_end(&mut said);
    assert!(said.len() <= GREETING_BYTES, "{said:?}");
    assert!(agent.refused().contains("did not answer in time"));
}

#[test]
fn an_agent_that_does_not_know_the_token_is_told_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let other = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut said = vec![0; GREETING_BYTES];
        stream.read_exact(&mut said).unwrap();
        stream.write_all(&Greeting::new([2; 32]).encode()).unwrap();
        let mut proof = [0; MAC_BYTES];
        stream.read_exact(&mut proof).unwrap();
        // The proof sent back is no proof of the agent's.
        stream.write_all(&proof).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).map(|_| rest.len())
    });
    let error = connected(&[&address], LONG).err().unwrap();
    assert_eq!(error.kind(), Kind::WrongKey);
    assert!(error.to_string().starts_with(&address), "{error}");
    assert_eq!(other.join().unwrap().unwrap_or(0), 0);
}

#[test]
fn messages_that_are_too_long_or_none_end_the_session() {
    let agent = Running::start();
    let end = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(&agent.address).unwrap();
        let ours = Greeting::new([3; 32]);
        stream.write_all(&ours.encode()).unwrap();
        let mut theirs = [0; GREETING_BYTES];
        stream.read_exact(&mut theirs).unwrap();
        let theirs = Greeting::decode(&theirs).unwrap();
        let handshake = SessionKeys::new(&token(), &ours, &theirs);
        stream.write_all(&handshake.proof(ConnectionEnd::Coordinator)).unwrap();
        let mut proof = [0; MAC_BYTES];
        stream.read_exact(&mut proof).unwrap();
        handshake.check(ConnectionEnd::Agent, &proof).unwrap();
        let (mut sealer, _) = handshake.keys(ConnectionEnd::Coordinator);
        let sealed = sealer.seal(bytes).unwrap();
        stream.write_all(&sealed).unwrap();
        (stream, sealer, sealed)
    };
    let mut long = end(b"\"alive\"").0;
    long.write_all(&[0xff; LENGTH_BYTES]).unwrap();
    assert!(agent.ended().unwrap().contains("too long"));
    let (mut stream, _, sealed) = end(b"\"alive\"");
    stream.write_all(&sealed).unwrap();
    assert!(agent.ended().unwrap().contains("repeated"), "the same message again");
    let (mut stream, mut sealer, _) = end(b"\"alive\"");
    let mut changed = sealer.seal(b"\"clean\"").unwrap();
    changed[LENGTH_BYTES + 1] ^= 1;
    stream.write_all(&changed).unwrap();
    assert!(agent.ended().unwrap().contains("changed"));
    for garbage in [&b"\"burn\""[..], b"", b"{\"plan\":{\"case\":7}}", &[0xff; 100]] {
        let stream = end(garbage).0;
        assert!(agent.ended().unwrap().contains("sent an invalid message"), "{garbage:?}");
        drop(stream);
    }
}

/// An agent that plans as a real one does and then says what it is told to, or nothing.
fn imposter(
    then: impl Fn(&Link, AgentRequest) -> Result<()> + Send + 'static,
) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let thread = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let link = Link::accept(stream, &token(), HANDSHAKE).unwrap();
        let planned = Planned {
            program: PROGRAM.to_owned(),
            name: "imposter".to_owned(),
            fingerprint: crate::fingerprint::Fingerprint::take(&[]),
            parameters: Vec::new(),
            variants: crate::result::tests::results(&[("a", &[])]).variants,
            is_exact: false,
            intents: Vec::new(),
            notes: Vec::new(),
        };
        let clock = || AgentReply::Clock {
            received_ns: nanos(Instant::now()),
            answered_ns: nanos(Instant::now()),
            wall_ahead_ns: 0,
        };
        while let Ok((payload, _)) = link.receive(LONG) {
            let answered = match decode_ask(&payload).unwrap() {
                AgentRequest::Alive => Ok(()),
                AgentRequest::Clock => link.send(&encode(&clock()).unwrap()),
                AgentRequest::Plan(_) => {
                    link.send(&encode(&AgentReply::Planned(Box::new(planned.clone()))).unwrap())
                }
                other => then(&link, other),
            };
            if answered.is_err() {
                break;
            }
        }
    });
    (address, thread)
}

fn done(link: &Link) -> Result<()> {
    link.send(&encode(&AgentReply::Done { notes: Vec::new() }).unwrap())
}

#[test]
#[ignore = "with --all: it waits for 6 s"]
fn an_agent_that_hangs_is_given_up_by_its_deadline_and_named() {
    let short = Duration::from_secs(3);
    // One that says nothing, and one that says that it is there and moves nothing.
    for is_alive in [false, true] {
        let (address, thread) = imposter(move |link, ask| match ask {
            AgentRequest::Prepare if is_alive => {
                let alive = encode(&AgentReply::Alive { bytes: 0, items: 0 }).unwrap();
                (0..1000).try_for_each(|_| {
                    thread::sleep(Duration::from_millis(20));
                    link.send(&alive)
                })
            }
            _ => Ok(()),
        });
        let mut cluster = connected(&[&address], short).unwrap();
        let error = measured(&mut cluster, &mut |_| {}).unwrap_err();
        assert_eq!(error.kind(), Kind::Unanswered, "{error}");
        let expected = if is_alive { "hangs" } else { "did not answer in time" };
        assert!(error.to_string().starts_with(&address), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        drop(cluster);
        thread.join().unwrap();
    }
}

#[test]
fn what_an_agent_says_is_not_believed_where_it_cannot_be() {
    let run = crate::result::tests::results(&[("a", &[1.0])]).variants[0].runs[0].clone();
    type Lie = fn(crate::result::Run) -> Vec<u8>;
    let answers: [(&str, Lie); 4] = [
        ("sent impossible results", |run| {
            let run = crate::result::Run { seconds: -1.0, ..run };
            encode(&AgentReply::Ran { began_ns: 0, run: Some(Box::new(run)) }).unwrap()
        }),
        ("sent an invalid message", |_| b"{\"ran\":".to_vec()),
        ("not requested", |_| {
            encode(&AgentReply::Clock { received_ns: 0, answered_ns: 0, wall_ahead_ns: 0 }).unwrap()
        }),
        ("sent an invalid message", |_| vec![b'['; 1 << 20]),
    ];
    for (expected, lie) in answers {
        let run = run.clone();
        let (address, thread) = imposter(move |link, ask| match ask {
            AgentRequest::Start { .. } => {
                link.send(&lie(run.clone()))?;
                done(link)
            }
            _ => done(link),
        });
        let mut cluster = connected(&[&address], Duration::from_secs(60)).unwrap();
        let error = measured(&mut cluster, &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains(expected), "{expected}: {error}");
        drop(cluster);
        thread.join().unwrap();
    }
}

#[test]
fn agents_that_would_not_measure_the_same_are_refused_by_name() {
    let agent = Running::start();
    let (address, thread) = imposter(|link, _| done(link));
    let error = connected(&[&agent.address, &address], LONG).err().unwrap();
    assert_eq!(error.kind(), Kind::Usage);
    assert!(error.to_string().contains(&address), "{error}");
    thread.join().unwrap();
    let older = CoordinatorOptions { program: "pinstripe 9.9.9".to_owned(), ..terms(LONG) };
    let addresses = [agent.address.clone()];
    assert!(agent.ended().is_some());
    let error =
        Coordinator::connect(&addresses, &token(), &asked("0.02"), older, never()).err().unwrap();
    assert_eq!(error.kind(), Kind::Unsupported);
    let twice = [agent.address.clone(), agent.address.clone()];
    let error = Coordinator::connect(&twice, &token(), &asked("0.02"), terms(LONG), never()).err();
    assert_eq!(error.unwrap().kind(), Kind::Usage);
}

#[test]
fn too_many_connections_are_refused_and_the_agent_goes_on() {
    let agent = Running::of_patience(LONG);
    let link = coordinator(&agent);
    let held: Vec<TcpStream> =
        (0..15).map(|_| TcpStream::connect(&agent.address).unwrap()).collect();
    let mut one_more = TcpStream::connect(&agent.address).unwrap();
    assert!(agent.refused().contains("too many"));
    assert_eq!(one_more.read(&mut [0; 1]).unwrap_or(0), 0);
    assert!(matches!(say(&link, &AgentRequest::Plan(asked("0.02"))), AgentReply::Planned(_)));
    drop(held);
}
