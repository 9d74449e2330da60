//! Networks that no other process sees: a thread's own, with further ones that are joined to it as other
//! machines would be.

use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::{is_root, skipped};

/// The network of a simulated machine.
#[derive(Debug)]
pub struct Network {
    space: OwnedFd,
    /// The address that it has: of a subnet with the process that made it, which has the address that ends in 1.
    pub address: String,
    /// The name of its interface.
    pub interface: &'static str,
}

impl Network {
    /// Works on a thread within the network; what is started there stays there.
    ///
    /// # Panics
    /// When the system does not let the thread in, or `work` panics.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let done = scope.spawn(|| {
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(self.space.as_fd(), kind).unwrap();
                work()
            });
            done.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Takes its interface down or up: while it is down nothing passes, and neither end is
    /// notified.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn set_up(&self, is_up: bool) {
        let state = if is_up { "up" } else { "down" };
        assert!(self.within(|| ip(&["link", "set", self.interface, state])));
    }
}

/// Works on a thread with a network of its own, joined to `count` others with the addresses
/// 10.77.1.2, 10.77.2.2 and so on.
pub fn in_own_networks(test: &str, count: usize, work: impl FnOnce(&[Network]) + Send) {
    if !is_root() {
        return skipped(test, "only root can create networks");
    }
    std::thread::scope(|scope| {
        let done = scope.spawn(|| {
            let made = leave().and_then(|_| (1..=count).map(joined).collect::<Option<Vec<_>>>());
            match made {
                Some(networks) => work(&networks),
                None => skipped(
                    test,
                    "networks cannot be created here, because ip(8) and veth are needed",
                ),
            }
        });
        done.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Leaves the network of the thread for a new one.
fn leave() -> Option<OwnedFd> {
    // SAFETY: leaving the shared network unshares nothing that memory safety rests on: no
    // descriptors, no address space.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.ok()?;
    ip(&["link", "set", "lo", "up"]).then_some(())?;
    Some(std::fs::File::open("/proc/thread-self/ns/net").ok()?.into())
}

/// A network that is joined to that of this thread.
fn joined(number: usize) -> Option<Network> {
    let here = rustix::thread::gettid().as_raw_nonzero().to_string();
    let (outer, ours) = (format!("outer{number}"), format!("10.77.{number}.1/24"));
    let address = format!("10.77.{number}.2");
    let theirs = format!("{address}/24");
    let space = std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            let space = leave()?;
            let steps: [&[&str]; 4] = [
                &["link", "add", "name", "inner", "type", "veth", "peer", "name", &outer],
                &["link", "set", &outer, "netns", &here],
                &["addr", "add", &theirs, "dev", "inner"],
                &["link", "set", "inner", "up"],
            ];
            steps.iter().all(|step| ip(step)).then_some(space)
        });
        made.join().ok()?
    })?;
    let steps: [&[&str]; 2] =
        [&["addr", "add", &ours, "dev", &outer], &["link", "set", &outer, "up"]];
    let is_joined = steps.iter().all(|step| ip(step));
    is_joined.then_some(Network { space, address, interface: "inner" })
}

fn ip(arguments: &[&str]) -> bool {
    let done = Command::new("ip").args(arguments).output();
    done.is_ok_and(|it| it.status.success())
}
