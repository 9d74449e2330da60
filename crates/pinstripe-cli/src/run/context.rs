//! The context of a verb: its options, its ledger and its screen; it also reports how the verb
//! ends.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
#[cfg(feature = "s3")]
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use pinstripe::{Limits, Store};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::hex;
use pinstripe_base::monitor::{Counter, Monitor, Redundancy};
use pinstripe_base::sync::lock;
#[cfg(feature = "s3")]
use pinstripe_bucket::{Buckets, Requests};
use pinstripe_member::Deadlines;
#[cfg(feature = "s3")]
use pinstripe_member::SealedCache;
use pinstripe_rados::Pools;

use super::known_stores::{KnownStore, KnownStores, Proof};
use super::place;
use super::progress::{Gauge, Ticker};
use super::real_path;
use super::screen::{Reporter, Screen};
#[cfg(feature = "serve")]
use super::served::ServedStores;
#[cfg(feature = "s3")]
use crate::args::refuse_option;
use crate::args::{Common, Time};
#[cfg(feature = "s3")]
use crate::aws::AwsSettings;
#[cfg(feature = "s3")]
use crate::bucket_args::{NewBucketArgs, is_bucket};
use crate::config::{Config, StoreEntry};
use crate::event::Event;
use crate::exit;
use crate::run::screen::Priority;
use crate::signals;
use crate::system;
use crate::xdg;

/// The interval at which the run checks whether another process has finished.
const BETWEEN_TRIES: Duration = Duration::from_millis(500);

/// The context of every verb.
pub struct Run {
    /// Options of every verb.
    pub common: Common,
    /// The screen to print on.
    pub screen: Arc<Screen>,
    /// The ledger.
    pub monitor: Arc<Monitor>,
    began: Instant,
    config: OnceLock<Config>,
    memory: OnceLock<Mutex<KnownStores>>,
    patience: OnceLock<Deadlines>,
    /// The places of the members that were reported as absent.
    reported_absent: Mutex<HashSet<PathBuf>>,
    #[cfg(feature = "s3")]
    buckets: OnceLock<Arc<Buckets>>,
    #[cfg(feature = "s3")]
    new_buckets: OnceLock<NewBucketArgs>,
    /// Whether the verb may use this host's cache of a store.
    #[cfg(feature = "s3")]
    pub(super) may_use_cache: AtomicBool,
    #[cfg(feature = "s3")]
    pub(super) cache: Mutex<Option<Arc<SealedCache>>>,
    pools: OnceLock<Arc<Pools>>,
    #[cfg(feature = "serve")]
    served: OnceLock<Arc<ServedStores>>,
}

/// The result of a verb that reached its end.
#[derive(Default)]
pub struct Ending {
    /// The exit code, if nothing was lost.
    pub code: u8,
    /// The facts of the summary event, in addition to the counters.
    pub facts: Event,
}

impl Ending {
    /// All was done.
    pub fn done(facts: Event) -> Self {
        Ending { code: exit::DONE, facts }
    }
}

impl Run {
    /// Prepares a run.
    pub fn new(common: Common) -> Self {
        let screen = Arc::new(Screen::new(&common));
        let monitor = Arc::new(Monitor::new(Box::new(Reporter(Arc::clone(&screen)))));
        let (config, memory, patience) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Run {
            common,
            screen,
            monitor,
            began: Instant::now(),
            config,
            memory,
            patience,
            reported_absent: Mutex::default(),
            #[cfg(feature = "s3")]
            buckets: OnceLock::new(),
            #[cfg(feature = "s3")]
            new_buckets: OnceLock::new(),
            #[cfg(feature = "s3")]
            may_use_cache: AtomicBool::new(false),
            #[cfg(feature = "s3")]
            cache: Mutex::default(),
            pools: OnceLock::new(),
            #[cfg(feature = "serve")]
            served: OnceLock::new(),
        }
    }

    /// The content of the config file; empty if the file is missing.
    ///
    /// # Errors
    /// Fails with the errors of [`Config::load`].
    pub fn config(&self) -> Result<&Config> {
        if let Some(config) = self.config.get() {
            return Ok(config);
        }
        let (config, _) = Config::load(&self.common)?;
        Ok(self.config.get_or_init(|| config))
    }

    /// The store that was named, with its entry in the config file; `None` means the default place.
    /// `preferred` is a name that takes precedence over all except the command line.
    ///
    /// # Errors
    /// Fails with the errors of [`Config::load`] and [`place::named`].
    pub fn named_store(&self, preferred: Option<&str>) -> Result<Option<StoreEntry>> {
        let named = self.named(preferred)?;
        let one_form = |mut named: StoreEntry| {
            named.members = self.each_place(&named.members)?;
            Ok(named)
        };
        named.map(one_form).transpose()
    }

    fn named(&self, preferred: Option<&str>) -> Result<Option<StoreEntry>> {
        let named = place::named(&self.common, preferred, self.config()?, &self.known_stores())?;
        #[cfg(feature = "serve")]
        let named = named.or_else(|| self.served().default_entry());
        Ok(named)
    }

    /// The places where the store to be read may be.
    ///
    /// # Errors
    /// Fails with the errors of [`Config::load`] and [`place::existing`].
    pub fn existing_places(&self) -> Result<Vec<PathBuf>> {
        let places = match self.named(None)? {
            Some(named) => named.members,
            None => place::existing(&self.known_stores())?,
        };
        self.each_place(&places)
    }

    /// The buckets of this run; the environment is read at the first call.
    #[cfg(feature = "s3")]
    pub fn buckets(&self) -> &Arc<Buckets> {
        self.buckets.get_or_init(|| {
            let settings = AwsSettings::load(&self.common.buckets);
            let defaults = settings.defaults();
            let buckets = Buckets::new(defaults, move |place| settings.access(place));
            let buckets = buckets.with_bandwidth(self.common.buckets.bandwidth());
            let buckets = buckets.with_past(self.common.buckets.at);
            let new = self.new_buckets.get();
            let buckets = buckets.with_retention(new.and_then(NewBucketArgs::retention));
            Arc::new(buckets.with_one_writer(new.is_some_and(NewBucketArgs::allows_one_writer)))
        })
    }

    /// Sets the options of new members in buckets. Must be called before any member is opened.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] if an option is given and none of the new members is in a bucket.
    #[cfg(feature = "s3")]
    pub fn new_buckets(&self, new: NewBucketArgs, places: &[PathBuf]) -> Result<()> {
        if let Some(option) = new.given() {
            let instead = "this option applies only to members in buckets, but no new member is in \
                           a bucket";
            refuse_option(!places.iter().any(|place| is_bucket(place)), option, instead)?;
        }
        let _ = self.new_buckets.set(new);
        Ok(())
    }

    /// The pools of this host's Ceph cluster, by the configuration file that Ceph's own tools read:
    /// `CEPH_CONF`, else `/etc/ceph/ceph.conf`.
    pub fn pools(&self) -> &Arc<Pools> {
        self.pools.get_or_init(|| {
            let conf = xdg::set("CEPH_CONF").unwrap_or_else(|| "/etc/ceph/ceph.conf".into());
            Arc::new(Pools::new(conf.into(), self.patience().limit()))
        })
    }

    /// The stores behind servers that this host can use; the saved connections are read at the
    /// first call.
    #[cfg(feature = "serve")]
    pub fn served(&self) -> &Arc<ServedStores> {
        self.served
            .get_or_init(|| Arc::new(ServedStores::load(&self.monitor, self.patience().limit())))
    }

    /// The requests that were sent to buckets, if any.
    #[cfg(feature = "s3")]
    pub fn asked_buckets(&self) -> Option<Requests> {
        let requests = self.buckets.get().map(|buckets| buckets.requests());
        requests.filter(|requests| *requests != Requests::default())
    }

    /// The stores that this host remembers; they are read at the first call.
    pub fn known_stores(&self) -> MutexGuard<'_, KnownStores> {
        let memory = self.memory.get_or_init(|| Mutex::new(KnownStores::load(&self.monitor)));
        lock(memory)
    }

    /// Remembers the present state of a store: after it was unlocked or created, or its members
    /// changed.
    pub fn remember(&self, store: &Store, proof: Proof) {
        if !self.shows_past() {
            self.known_stores().keep(store, &[], proof, &self.monitor, |_| {});
        }
    }

    /// Remembers a store that a key slot opened.
    pub fn remember_opened(&self, store: &Store, slot: [u8; 16]) {
        if self.shows_past() {
            return;
        }
        let change = |known: &mut KnownStore| known.slot = Some(hex(&slot));
        self.known_stores().keep(store, &[], Proof::Sure, &self.monitor, change);
    }

    /// The time that the run waits for members; a member that does not answer is named.
    pub fn patience(&self) -> Deadlines {
        let patience = self.patience.get_or_init(|| {
            let limit = self.common.member_timeout();
            Deadlines::new(limit, signals::flag(), report_silence(&self.monitor))
        });
        real_path::set_patience(patience);
        patience.clone()
    }

    /// Sets the time that a verb that only reads waits for members; the verb continues until it is
    /// ended, since a member may return. `limit` is the verb's own time limit. A verb that only
    /// reads calls this before it opens the store.
    pub fn wait_as_reader(&self, limit: Option<Duration>) {
        let limit = limit.unwrap_or_else(|| self.common.member_timeout());
        let monitor = Arc::clone(&self.monitor);
        let tell_return = move |place: &Path| {
            monitor.note(&format!("the member at {} answers again", place.display()))
        };
        let silence = report_silence(&self.monitor);
        let patience = Deadlines::of_reader(limit, signals::flag(), silence, tell_return);
        assert!(self.patience.set(patience).is_ok(), "nothing was waited for before");
        self.patience();
    }

    /// Calls `work`, and repeats it while another process uses what it needs: not at all without
    /// `wait`, else without limit or for the given time. Each repetition of `work` opens the store
    /// again.
    ///
    /// # Errors
    /// Fails with the errors of `work`; with [`Kind::Busy`] when the time has elapsed.
    pub fn wait_for(
        &self,
        wait: Option<Option<Time>>,
        work: impl Fn() -> Result<Ending>,
    ) -> Result<Ending> {
        let (began, mut is_told) = (Instant::now(), false);
        loop {
            let done = work();
            let is_over = match wait {
                None => true,
                Some(limit) => limit.is_some_and(|limit| began.elapsed() >= limit.0),
            };
            match done {
                Err(error) if error.kind() == Kind::Busy && !is_over => {
                    if !std::mem::replace(&mut is_told, true) {
                        self.monitor.note(&format!("waiting: {error}"));
                    }
                    std::thread::sleep(BETWEEN_TRIES);
                }
                done => return done,
            }
        }
    }

    /// After a signal, ends the process if the run makes no progress. To be used only by verbs that
    /// may be ended at any time.
    pub fn end_what_hangs(&self) {
        let monitor = Arc::clone(&self.monitor);
        let screen = Arc::clone(&self.screen);
        // Answers of members are not progress: a writer polls the members each second during its
        // work.
        let progress = move || {
            let counted = Counter::ALL.iter().map(|(counter, _)| monitor.get(*counter));
            counted.fold(0, u64::wrapping_add)
        };
        signals::end_what_hangs(progress, move |text| screen.complain(Priority::Warning, text));
    }

    /// Calls `work` again without the members that stopped answering, each time that it ends
    /// because of one. To be used by verbs that can be repeated; each repetition opens the store
    /// again.
    ///
    /// # Errors
    /// Fails with the errors of `work`.
    pub fn without_silent<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            let before = self.patience().silent_places();
            let done = work();
            let is_news = self.patience().silent_places() > before;
            match done {
                Err(error) if error.kind() == Kind::Unanswered && is_news => {
                    if signals::is_caught() {
                        return Err(error);
                    }
                    self.monitor
                        .note("this run starts again without the member that does not answer");
                }
                done => return done,
            }
        }
    }

    /// Reports absent members for a verb that writes, which then ends with exit code 4. Each member
    /// is reported once, also if the verb has several parts.
    pub fn degraded_by_absent(&self, store: &Store) {
        for number in store.absent() {
            let place = &store.member_slots[number].place;
            if lock(&self.reported_absent).insert(place.clone()) {
                self.monitor.degraded(place, store.absence(number));
            }
        }
    }

    /// Warns about absent members, for verbs whose library function does not.
    pub fn warn_of_absent(&self, store: &Store) {
        for number in store.absent() {
            self.monitor.warning(&store.member_slots[number].place, store.absence(number));
        }
    }

    /// The limits of threads and queues for a store.
    pub fn limits(&self, store: &Store) -> Limits {
        let cores = self.common.threads.map_or_else(system::cores, |threads| threads as usize);
        Limits::new(cores, store.member_slots.len(), self.common.memory.0)
    }

    /// Starts the progress bar, which ends when the returned ticker is dropped.
    pub fn ticker(&self, gauge: Gauge) -> Ticker {
        Ticker::start(&self.common, &self.screen, &self.monitor, gauge)
    }

    /// Time since the run began.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Reads a counter.
    pub fn count(&self, counter: Counter) -> u64 {
        self.monitor.get(counter)
    }

    /// Prints how many more members may be lost, if that is known and the store has parity.
    pub fn say_redundancy(&self) {
        if let Some(redundancy) = self.monitor.redundancy().filter(|it| it.parity > 0) {
            self.screen.say(&redundancy.describe());
        }
    }

    /// Reports how the run ended, and determines its exit code.
    pub fn conclude(&self, verb: &str, ended: Result<Ending>) -> ExitCode {
        if let Some(failure) = self.screen.failure() {
            return self.without_output(&failure);
        }
        let ended = match self.monitor.take_outdated() {
            Some(outdated) => ended.and(Err(outdated)),
            None => ended,
        };
        let (code, facts) = match ended {
            Ok(ending) => (exit::of_ledger(&self.monitor, ending.code), ending.facts),
            Err(error) => {
                self.screen.error(&error);
                // An operation that an interrupt cut off is not a failure of its own.
                let is_cut = error.kind() == Kind::Unanswered && signals::is_caught();
                let kind = if is_cut { Kind::Interrupted } else { error.kind() };
                let code = match kind {
                    Kind::Interrupted => signals::exit_code(),
                    kind => exit::of_error(kind),
                };
                (code, Event::default())
            }
        };
        if code == exit::LOSSES && !self.common.quiet {
            let losses = self.count(Counter::Losses);
            self.screen.complain(Priority::Error, &format!(
                "pinstripe: finished with losses; number of losses listed above: {losses} (exit \
                 code {code})"
            ));
        }
        if code == exit::DEGRADED && !self.common.quiet {
            // What a recorder writes to are directories, and they took part until they failed.
            let (one, many, did) = match verb {
                "record" => ("directory", "directories", "failed"),
                _ => ("member", "members", "did not take part in the complete run"),
            };
            let members = match self.count(Counter::DegradedMembers) {
                1 => format!("1 {one}, listed above, {did}"),
                count => format!("{count} {many}, listed above, {did}"),
            };
            let left = match self.monitor.redundancy() {
                Some(redundancy) => redundancy.describe(),
                None => "nothing is lost".to_owned(),
            };
            self.screen.complain(
                Priority::Warning,
                &format!("pinstripe: done, but degraded: {members}; {left} (exit code {code})"),
            );
        }
        let mut summary = Event::new("summary").with("verb", verb);
        for &(counter, name) in Counter::ALL {
            summary = summary.with(name, self.count(counter));
        }
        if let Some(Redundancy { survives, thin_packs, .. }) = self.monitor.redundancy() {
            summary = summary.with("survives", survives).with("thin_packs", thin_packs);
        }
        let summary = self
            .add_requests(summary)
            .with_all(facts)
            .with("elapsed_seconds", self.elapsed().as_secs_f64())
            .with("exit_code", code);
        let _ = self.screen.event(&summary);
        self.screen.close_log();
        match self.screen.failure() {
            Some(failure) => self.without_output(&failure),
            None => ExitCode::from(code),
        }
    }

    fn without_output(&self, failure: &std::io::Error) -> ExitCode {
        if failure.kind() == std::io::ErrorKind::BrokenPipe {
            return ExitCode::from(exit::BROKEN_PIPE);
        }
        let text = format!("pinstripe: error: cannot write to standard output: {failure}");
        self.screen.complain(Priority::Error, &text);
        ExitCode::from(exit::FAILED)
    }
}

/// Reports that a member does not answer.
fn report_silence(monitor: &Arc<Monitor>) -> impl Fn(&Path, Error) + Send + Sync + use<> {
    let monitor = Arc::clone(monitor);
    move |place, error| monitor.silent_member(place, error)
}
