//! What can be done to an array, one kind of act each. Every ordered pair of them is played.

use pinstripe_array::{ManageAction, Request};

/// One kind of act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    ShortWrites,
    LongWrites,
    Reads,
    Sync,
    Checkpoint,
    Fail,
    FailReplacement,
    FailOld,
    Remove,
    Add,
    AddBack,
    AddOlder,
    Spare,
    Replace,
    GrowMembers,
    GrowSize,
    Level,
    Granule,
    Scrub,
    Repair,
    Cancel,
    Work,
    Wait,
    Stop,
    SwapOlder,
    Kill,
    PowerCut,
}

impl Verb {
    pub const ALL: [Verb; 27] = [
        Verb::ShortWrites,
        Verb::LongWrites,
        Verb::Reads,
        Verb::Sync,
        Verb::Checkpoint,
        Verb::Fail,
        Verb::FailReplacement,
        Verb::FailOld,
        Verb::Remove,
        Verb::Add,
        Verb::AddBack,
        Verb::AddOlder,
        Verb::Spare,
        Verb::Replace,
        Verb::GrowMembers,
        Verb::GrowSize,
        Verb::Level,
        Verb::Granule,
        Verb::Scrub,
        Verb::Repair,
        Verb::Cancel,
        Verb::Work,
        Verb::Wait,
        Verb::Stop,
        Verb::SwapOlder,
        Verb::Kill,
        Verb::PowerCut,
    ];

    /// The column of the table, and what it does.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Verb::ShortWrites => ("sw", "writes of up to 6 KB"),
            Verb::LongWrites => ("lw", "writes over several rows, one long write to each member"),
            Verb::Reads => ("rd", "reads, compared"),
            Verb::Sync => ("sy", "flush by a client"),
            Verb::Checkpoint => ("cp", "checkpoint of the log"),
            Verb::Fail => ("fa", "manage --fail of any device"),
            Verb::FailReplacement => ("fn", "manage --fail of the device that a replace fills"),
            Verb::FailOld => ("fo", "manage --fail of the member that is being replaced"),
            Verb::Remove => ("rm", "manage --remove of any device"),
            Verb::Add => ("ad", "manage --add of a new device"),
            Verb::AddBack => ("ab", "manage --add of a member that failed"),
            Verb::AddOlder => ("ao", "manage --add of an older copy of a member that failed"),
            Verb::Spare => ("sp", "a spare beside a whole array"),
            Verb::Replace => ("re", "manage --replace --with"),
            Verb::GrowMembers => ("gm", "grow --add"),
            Verb::GrowSize => ("gs", "grow --size max"),
            Verb::Level => ("le", "grow --level"),
            Verb::Granule => ("se", "set stripe_size"),
            Verb::Scrub => ("sc", "scrub"),
            Verb::Repair => ("sr", "scrub --repair"),
            Verb::Cancel => ("ca", "set sync_action=idle"),
            Verb::Work => ("wo", "slices of the work in progress"),
            Verb::Wait => ("wa", "wait"),
            Verb::Stop => ("st", "stop, and assemble"),
            Verb::SwapOlder => ("so", "stop, an older copy in a member's place, assemble"),
            Verb::Kill => ("ki", "kill -9, and assemble"),
            Verb::PowerCut => ("pc", "a power cut amid writes and work, and assemble"),
        }
    }

    /// The verbs of the simulator that send a request. A request without one does not compile.
    pub fn of(request: &Request) -> &'static [Verb] {
        match request {
            Request::Detail | Request::Events => &[Verb::Reads],
            Request::Check { acts } => acts.first().map_or(&[], Self::of_act),
            Request::Manage { act } => Self::of_act(act),
            Request::Set { .. } => &[Verb::Granule, Verb::Cancel],
            Request::Scrub { repair: false } => &[Verb::Scrub],
            Request::Scrub { repair: true } => &[Verb::Repair],
            Request::Grow { .. } => &[Verb::GrowMembers],
            Request::ChangeLevel { .. } => &[Verb::Level],
            Request::GrowSize => &[Verb::GrowSize],
            Request::Cancel => &[Verb::Cancel],
            Request::Stop { .. } => &[Verb::Stop, Verb::SwapOlder],
        }
    }

    fn of_act(act: &ManageAction) -> &'static [Verb] {
        match act {
            ManageAction::Fail { .. } => &[Verb::Fail, Verb::FailReplacement, Verb::FailOld],
            ManageAction::Remove { .. } => &[Verb::Remove],
            ManageAction::Add { .. } => &[Verb::Add, Verb::AddBack, Verb::AddOlder, Verb::Spare],
            ManageAction::Replace { .. } => &[Verb::Replace],
        }
    }
}
