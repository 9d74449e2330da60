//! The number of records that are planned ahead of an object's readers, over all streams.

/// The least gain of speed, in per cent, that justifies a doubling of the window; with less, the
/// doubling was one too many.
const GAIN_MIN: u64 = 15;
/// If a doubling made the reader faster by at least this gain, in per cent, the window grows
/// fourfold.
const GAIN_LARGE: u64 = 50;
/// The number of successive doublings with too little gain after which the window stays: a single
/// one may be bad luck.
const VAIN_MAX: u32 = 2;
/// The number of consumed windows after which doubling is tried again on a window that stayed.
const REST: u64 = 8;
const WINDOW_MAX: u32 = 1 << 16;

/// A window that doubles as long as doubling makes the reader faster.
#[derive(Debug)]
pub(super) struct Window {
    records: u32,
    /// The number of records consumed since the window got its present size.
    consumed: u64,
    since: u64,
    has_waited: bool,
    /// The time per record with the previous window, in 1/1024 nanoseconds.
    before: Option<u64>,
    vain: u32,
}

impl Default for Window {
    fn default() -> Self {
        Window { records: 1, consumed: 0, since: 0, has_waited: false, before: None, vain: 0 }
    }
}

impl Window {
    pub(super) fn records(&self) -> u32 {
        self.records
    }

    /// Records that the reader consumed a record, and whether it had to wait for it. A window is
    /// judged when as many records were consumed as its size: only these were fetched with it.
    pub(super) fn consumed(&mut self, has_waited: bool, now: u64) {
        self.consumed += 1;
        self.has_waited |= has_waited;
        if self.consumed < u64::from(self.records) {
            return;
        }
        let each = now.saturating_sub(self.since).saturating_mul(1024) / self.consumed;
        if !self.has_waited {
            return self.begin(now, None);
        }
        let is_faster_by = |gain: u64| {
            self.before
                .is_none_or(|before| each.saturating_mul(100 + gain) <= before.saturating_mul(100))
        };
        let factor = if is_faster_by(GAIN_LARGE) { 4 } else { 2 };
        self.vain = if is_faster_by(GAIN_MIN) { 0 } else { self.vain + 1 };
        if self.vain < VAIN_MAX {
            self.records = (self.records * factor).min(WINDOW_MAX);
            self.begin(now, Some(each));
        } else if self.consumed >= REST * u64::from(self.records) {
            self.vain = 0;
            self.begin(now, None);
        }
    }

    fn begin(&mut self, now: u64, before: Option<u64>) {
        (self.consumed, self.since, self.has_waited) = (0, now, false);
        self.before = before.or(self.before);
    }

    /// Halves the window, because a record was fetched in vain.
    pub(super) fn halve(&mut self) {
        self.records = (self.records / 2).max(1);
    }
}
