//! A proxy before a server on the loopback that adds a delay to every request and counts them:
//! `proxy UPSTREAM_PORT DELAY_MS`. It prints its port; each line on standard input makes it print
//! the number of requests since the one before, and the end of standard input ends it.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a tool of developers")]

use std::time::Duration;

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>().expect("a number"));
    let mut next = || args.next().expect("usage: proxy UPSTREAM_PORT DELAY_MS");
    let proxy = pinstripe_testing::Proxy::start(next() as u16);
    proxy.delay(Duration::from_millis(next()));
    println!("{}", proxy.port());
    for _ in std::io::stdin().lines() {
        println!("{}", proxy.take_log().len());
    }
}
