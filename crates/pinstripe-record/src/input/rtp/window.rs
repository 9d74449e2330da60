//! Determines the position of a packet from its timestamp, never from its sequence number or its
//! arrival.
//!
//! The module is a pure data structure. Frames wait in a window that is as long as the tolerated
//! reordering. Older frames are passed on, and holes become lost frames of exactly the same length.
//! The size of the window limits the memory, whatever packets contain.

/// Counts of packets, by what happened to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RtpCounts {
    /// Packets whose frames were placed in the window.
    pub placed: u64,
    /// Placed packets that arrived after a later packet.
    pub reordered: u64,
    /// Duplicate packets, which contained no new frame.
    pub doubled: u64,
    /// Packets that arrived too late for the window.
    pub late: u64,
    /// Frames that never arrived.
    pub lost_frames: u64,
    /// Restarts, due to a jump of the timestamps or another sender.
    pub restarts: u64,
}

/// Output of the window, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Given<'a> {
    /// Whole frames.
    Frames(&'a [u8]),
    /// Frames that are missing; the value is their number.
    Lost(u64),
}

/// Frames that wait.
pub struct RtpWindow {
    frame_bytes: usize,
    /// The size of the window, in frames.
    size: u64,
    /// A forward jump longer than this many frames is not caused by lost packets.
    jump: i64,
    bytes: Vec<u8>,
    is_there: Vec<bool>,
    /// The timestamp of the last packet, and the number of the frame that it designated.
    last: Option<(u32, i64)>,
    /// The number of frames that were passed on.
    given: i64,
    /// The number of the frame after the newest one.
    newest: i64,
    /// The counts of packets so far.
    pub counts: RtpCounts,
}

impl RtpWindow {
    /// An empty window of `size` frames, for a stream of `rate` frames per second.
    pub fn new(frame_bytes: usize, size: u64, rate: u32) -> Self {
        RtpWindow {
            frame_bytes,
            size,
            jump: i64::from(rate),
            bytes: vec![0; frame_bytes * size as usize],
            is_there: vec![false; size as usize],
            last: None,
            given: 0,
            newest: 0,
            counts: RtpCounts::default(),
        }
    }

    /// Restarts the window: the next packet is placed `missing` frames after the newest one.
    pub fn restart(&mut self, missing: u64, give: &mut dyn FnMut(Given<'_>)) {
        if self.last.is_some() {
            self.counts.restarts += 1;
            self.newest = self.newest.saturating_add_unsigned(missing);
            self.give_up_to(self.newest, give);
            self.last = None;
        }
    }

    /// Places complete frames according to their timestamp. `waited` is the time since the last
    /// packet, in frames; it is used to bridge a jump of the timestamps.
    pub fn place(
        &mut self,
        timestamp: u32,
        frames: &[u8],
        waited: u64,
        give: &mut dyn FnMut(Given<'_>),
    ) {
        let count = (frames.len() / self.frame_bytes) as i64;
        if count == 0 || count as u64 > self.size {
            return;
        }
        let mut at = match self.last {
            None => self.newest,
            // The shorter way round, as RFC 3550 has it.
            Some((last, frame)) => frame + i64::from(timestamp.wrapping_sub(last) as i32),
        };
        let is_jump = at - self.newest > self.jump || self.newest - at > self.jump;
        if is_jump {
            self.restart(waited.saturating_sub(count as u64), give);
            at = self.newest;
        }
        self.last = Some((timestamp, at));
        if at < self.given {
            self.counts.late += 1;
            return;
        }
        let is_behind = at < self.newest;
        self.newest = self.newest.max(at + count);
        self.give_up_to(self.newest - self.size as i64, give);
        let mut is_new = false;
        for (frame, bytes) in (at..).zip(frames.chunks_exact(self.frame_bytes)) {
            let slot = (frame as u64 % self.size) as usize;
            is_new |= !std::mem::replace(&mut self.is_there[slot], true);
            let place = slot * self.frame_bytes;
            self.bytes[place..place + self.frame_bytes].copy_from_slice(bytes);
        }
        match is_new {
            true => {
                self.counts.placed += 1;
                self.counts.reordered += u64::from(is_behind);
            }
            false => self.counts.doubled += 1,
        }
    }

    /// Passes on all waiting frames.
    pub fn finish(&mut self, give: &mut dyn FnMut(Given<'_>)) {
        self.give_up_to(self.newest, give);
    }

    fn give_up_to(&mut self, end: i64, give: &mut dyn FnMut(Given<'_>)) {
        while self.given < end {
            let slot = (self.given as u64 % self.size) as usize;
            // Nothing beyond the window was ever put in.
            let most = ((end - self.given) as u64).min(self.size - slot as u64) as usize;
            let is_there = self.is_there[slot];
            let run = &mut self.is_there[slot..slot + most];
            let count = run.iter().take_while(|it| **it == is_there).count();
            run[..count].fill(false);
            if is_there {
                let bytes = slot * self.frame_bytes..(slot + count) * self.frame_bytes;
                give(Given::Frames(&self.bytes[bytes]));
            } else {
                self.counts.lost_frames += count as u64;
                give(Given::Lost(count as u64));
            }
            self.given += count as i64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(number: u64) -> [u8; 4] {
        (number as u32 | 0x8000_0000).to_be_bytes()
    }

    fn packet(from: u64, count: u64) -> Vec<u8> {
        (from..from + count).flat_map(frame).collect()
    }

    /// Frames that are given out, lost ones as zeros.
    fn collected(out: &mut Vec<u8>) -> impl FnMut(Given<'_>) + '_ {
        |given| match given {
            Given::Frames(bytes) => out.extend_from_slice(bytes),
            Given::Lost(frames) => out.resize(out.len() + 4 * frames as usize, 0),
        }
    }

    #[test]
    fn lost_late_doubled_and_reordered_packets_are_as_planted() {
        const PACKETS: u64 = 20_000;
        let mut window = RtpWindow::new(4, 2880, 48_000);
        let mut out = Vec::new();
        let mut give = collected(&mut out);
        let mut planted = RtpCounts::default();
        // Timestamps that go past their end.
        let stamp = |number: u64| 0xffff_f000_u32.wrapping_add((48 * number) as u32);
        let mut order: Vec<u64> = (0..PACKETS).collect();
        for at in (500..PACKETS as usize - 1).step_by(100) {
            order.swap(at, at + 1);
            planted.reordered += 1;
        }
        for number in order {
            if number % 100 == 50 {
                planted.lost_frames += 48;
                continue;
            }
            let times = if number % 1000 == 7 { 2 } else { 1 };
            planted.doubled += times - 1;
            planted.placed += 1;
            for _ in 0..times {
                window.place(stamp(number), &packet(48 * number, 48), 48, &mut give);
            }
        }
        window.place(stamp(10), &packet(480, 48), 48, &mut give);
        planted.restarts = 1;
        window.finish(&mut give);
        planted.placed += 1;
        drop(give);
        assert_eq!(window.counts, planted);
        assert_eq!(out.len() as u64, 4 * 48 * (PACKETS + 1));
        for (number, found) in (0..48 * PACKETS).zip(out.chunks(4)) {
            let is_lost = number / 48 % 100 == 50;
            assert_eq!(found, if is_lost { [0; 4] } else { frame(number) }, "{number}");
        }
    }

    #[test]
    fn a_packet_behind_the_window_is_late_and_a_jump_is_bridged_by_time() {
        let mut window = RtpWindow::new(4, 480, 48_000);
        let mut out = Vec::new();
        let mut give = collected(&mut out);
        for number in 0..30 {
            window.place(1000 + 48 * number, &packet(48 * u64::from(number), 48), 48, &mut give);
        }
        window.place(1000, &packet(0, 48), 48, &mut give);
        assert_eq!(window.counts.late, 1);
        // Ten seconds on, but a tenth of a second has passed.
        window.place(1000 + 480_000, &packet(7, 48), 4800, &mut give);
        window.finish(&mut give);
        drop(give);
        assert_eq!((window.counts.restarts, window.counts.lost_frames), (1, 4752));
        assert_eq!(out.len(), 4 * (30 * 48 + 4800));
    }

    #[test]
    fn no_timestamp_takes_more_than_the_window() {
        let mut window = RtpWindow::new(4, 480, 48_000);
        let mut given = 0;
        let mut state = 1_u32;
        for _ in 0..10_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let frames = packet(1, u64::from(state % 600));
            window.place(state, &frames, u64::from(state >> 24), &mut |it| match it {
                Given::Frames(bytes) => given += bytes.len() as u64 / 4,
                Given::Lost(frames) => given += frames,
            });
        }
        assert!(given > 0 && window.bytes.len() == 4 * 480);
    }
}
