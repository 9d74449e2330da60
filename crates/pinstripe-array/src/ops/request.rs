//! Requests to an array and their replies: the same whether another process serves it or this one
//! opened it. On a control socket each is a JSON object on a line.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::detail::Detail;
use super::events::ArrayEvent;
use pinstripe_base::error::{Error, Kind};

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Ask for its state: [`Reply::Detail`].
    Detail,
    /// Ask whether several changes could be made one after the other, by what their devices are.
    Check {
        /// The changes.
        acts: Vec<ManageAction>,
    },
    /// To change its members.
    Manage {
        /// The change.
        act: ManageAction,
    },
    /// To set a knob, by md's name.
    Set {
        /// The name.
        name: String,
        /// To what.
        value: String,
    },
    /// Read everything and compare it, and repair mismatches if asked for.
    Scrub {
        /// Whether to mend.
        repair: bool,
    },
    /// To become one member wider.
    Grow {
        /// The number of members afterwards, which must be one more; also the default.
        raid_devices: Option<usize>,
        /// The device that becomes a member; if none is named, a spare does. Its path is absolute.
        add: Option<PathBuf>,
        /// The content of the device may be overwritten.
        force: bool,
    },
    /// To change its level, where that moves no data.
    ChangeLevel {
        /// The level, in mdadm's words.
        level: String,
        /// The device that becomes a member, where one more is needed; if none is named, a spare
        /// does. Its path is absolute.
        add: Option<PathBuf>,
        /// The content of the device may be overwritten.
        force: bool,
    },
    /// To use as much of each member as the smallest one has.
    GrowSize,
    /// End the work in progress; its progress stays.
    Cancel,
    /// Follow changes from now on: a [`Reply::Event`] for each, until the client disconnects.
    Events,
    /// Write everything, and end.
    Stop {
        /// Also while a program has the array's file open.
        #[serde(default)]
        force: bool,
    },
}

/// A change of members. Paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum ManageAction {
    /// Give a member up.
    Fail {
        /// The device.
        device: PathBuf,
    },
    /// Forget one that failed, or a spare.
    Remove {
        /// The device.
        device: PathBuf,
    },
    /// Take a device in: as the member that it was, or as a new one, or as a spare.
    Add {
        /// The device.
        device: PathBuf,
        /// The content of the device may be overwritten.
        force: bool,
        /// Only if it was a member and can be brought up to date.
        only_again: bool,
    },
    /// Copy a member to another device, which then takes its place.
    Replace {
        /// The device of the member.
        device: PathBuf,
        /// The other one.
        with: PathBuf,
        /// The new device may lose what it carries.
        force: bool,
    },
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// The state.
    Detail(Box<Detail>),
    /// It is done, or begun.
    Done {
        /// A text about it for people.
        said: String,
    },
    /// Something happened.
    Event(ArrayEvent),
    /// It cannot be done.
    Failed(Failure),
}

/// An error in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    kind: String,
    what: String,
    place: Option<PathBuf>,
    expected: Option<(String, String)>,
    advice: Option<String>,
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let cause = error.cause().map(|cause| format!(": {cause}")).unwrap_or_default();
        let expected = error.expected_found();
        Failure {
            kind: error.kind().name().to_owned(),
            what: format!("{}{cause}", error.what()),
            place: error.place().map(PathBuf::from),
            expected: expected.map(|(expected, found)| (expected.to_owned(), found.to_owned())),
            advice: error.advice_text().map(str::to_owned),
        }
    }
}

impl Failure {
    /// The error that it was.
    pub fn into_error(self) -> Error {
        let kind = Kind::from_name(&self.kind).unwrap_or(Kind::Io);
        let mut error = Error::new(kind, self.what);
        if let Some(place) = self.place {
            error = error.at(place);
        }
        if let Some((expected, found)) = self.expected {
            error = error.expected(expected, found);
        }
        match self.advice {
            Some(advice) => error.advice(advice),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_replies_come_back() {
        let device = PathBuf::from("/dev/b");
        for request in [
            Request::Detail,
            Request::Stop { force: false },
            Request::Set { name: "stripe_size".into(), value: "auto".into() },
            Request::Manage { act: ManageAction::Fail { device: device.clone() } },
            Request::Check { acts: vec![ManageAction::Remove { device: device.clone() }] },
            Request::Grow { raid_devices: Some(5), add: Some(device.clone()), force: true },
            Request::ChangeLevel { level: "6".into(), add: Some(device.clone()), force: false },
            Request::GrowSize,
            Request::Manage { act: ManageAction::Add { device, force: false, only_again: true } },
        ] {
            let line = serde_json::to_string(&request).unwrap();
            assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), request, "{line}");
        }
        assert!(serde_json::from_str::<Request>("{\"request\":\"explode\"}").is_err());
    }

    #[test]
    fn an_error_arrives_as_it_was() {
        let error = Error::new(Kind::Refused, "no").at("/dev/b").expected(1, 2).advice("so");
        let reply = serde_json::to_string(&Reply::Failed(Failure::from(&error))).unwrap();
        let Reply::Failed(failure) = serde_json::from_str(&reply).unwrap() else {
            panic!("{reply}")
        };
        let arrived = failure.into_error();
        assert_eq!(arrived.to_string(), error.to_string());
        assert_eq!((arrived.kind(), arrived.advice_text()), (Kind::Refused, Some("so")));
        assert_eq!(arrived.place(), error.place());
    }
}
