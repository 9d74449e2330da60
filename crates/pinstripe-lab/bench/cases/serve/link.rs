//! A link with a long round trip: a proxy that passes bytes on after a delay.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;

/// A proxy on the loopback. Each direction of a connection takes half of the round trip, and a new
/// connection one round trip more, as the handshake of TCP does. It has no limit of its rate.
pub struct DelayedLink {
    /// Its address.
    pub address: String,
    /// The round trip in milliseconds.
    round_trip: Arc<AtomicU64>,
}

impl DelayedLink {
    /// Starts one before a server, without a delay. Its threads end with the process.
    pub fn start(upstream: &str) -> Result<DelayedLink> {
        let told = |error: std::io::Error| format!("cannot start a link: {error}");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(told)?;
        let address = listener.local_addr().map_err(told)?.to_string();
        let upstream = upstream.to_owned();
        let round_trip = Arc::new(AtomicU64::new(0));
        let own = Arc::clone(&round_trip);
        thread::spawn(move || {
            for client in listener.incoming().map_while(|it| it.ok()) {
                let upstream = upstream.clone();
                let round_trip = Duration::from_millis(own.load(Ordering::Relaxed));
                thread::spawn(move || {
                    thread::sleep(round_trip);
                    if let Ok(server) = TcpStream::connect(&upstream) {
                        let _ = connect(&client, &server, round_trip / 2);
                    }
                });
            }
        });
        Ok(DelayedLink { address, round_trip })
    }

    /// New connections have this round trip from now on.
    pub fn set_round_trip(&self, round_trip: Duration) {
        self.round_trip.store(round_trip.as_millis() as u64, Ordering::Relaxed);
    }
}

fn connect(client: &TcpStream, server: &TcpStream, delay: Duration) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    for (from, to) in [(client, server), (server, client)] {
        let (from, to) = (from.try_clone()?, to.try_clone()?);
        let (sender, receiver) = channel();
        thread::spawn(move || take(from, &sender));
        thread::spawn(move || give(to, &receiver, delay));
    }
    Ok(())
}

fn take(mut from: TcpStream, sender: &Sender<(Instant, Vec<u8>)>) {
    let mut buffer = vec![0; 256 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if sender.send((Instant::now(), buffer[..count].to_vec())).is_err() {
            return;
        }
    }
}

fn give(mut to: TcpStream, receiver: &Receiver<(Instant, Vec<u8>)>, delay: Duration) {
    for (came, bytes) in receiver {
        thread::sleep(delay.saturating_sub(came.elapsed()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
