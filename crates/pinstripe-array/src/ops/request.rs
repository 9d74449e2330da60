//! Requests to an array and their replies: they are the same whether another process serves the
//! array or this process opened it. On a control socket, each request and reply is a JSON object on
//! one line.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::detail::Detail;
use super::events::ArrayEvent;
use pinstripe_base::error::{Error, Kind};

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Asks for the state of the array: [`Reply::Detail`].
    Detail,
    /// Asks whether several changes of members could be made one after the other, as far as the
    /// devices show it.
    Check {
        /// The changes.
        acts: Vec<ManageAction>,
    },
    /// Changes the members of the array.
    Manage {
        /// The change.
        act: ManageAction,
    },
    /// Sets a knob, by md's name.
    Set {
        /// The name.
        name: String,
        /// To what.
        value: String,
    },
    /// Reads and compares everything, and repairs mismatches if requested.
    Scrub {
        /// Whether to mend.
        repair: bool,
    },
    /// Grows the array by one member.
    Grow {
        /// The number of members after the growth; only one more than now is possible, which is the
        /// default.
        raid_devices: Option<usize>,
        /// The device that becomes a member; by default, a spare becomes it. The path is absolute.
        add: Option<PathBuf>,
        /// The content of the device may be overwritten.
        force: bool,
    },
    /// Changes the level of the array, where that moves no data.
    ChangeLevel {
        /// The level, in mdadm's words.
        level: String,
        /// The device that becomes a member, if the new level needs one more; by default, a spare
        /// becomes it. The path is absolute.
        add: Option<PathBuf>,
        /// The content of the device may be overwritten.
        force: bool,
    },
    /// Makes the array use as much of each member as the smallest one has.
    GrowSize,
    /// Ends the work in progress; its progress is kept.
    Cancel,
    /// Follows changes from now on: the reply is a [`Reply::Event`] for each, until the client
    /// disconnects.
    Events,
    /// Writes everything, and stops serving the array.
    Stop {
        /// Stops even if a program has the array's file open.
        #[serde(default)]
        force: bool,
    },
}

/// A change of members. Paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum ManageAction {
    /// Marks a member as failed.
    Fail {
        /// The device.
        device: PathBuf,
    },
    /// Forgets a failed member, or removes a spare.
    Remove {
        /// The device.
        device: PathBuf,
    },
    /// Adds a device: as the member that it was, as a new member, or as a spare.
    Add {
        /// The device.
        device: PathBuf,
        /// The content of the device may be overwritten.
        force: bool,
        /// Adds the device only if it was a member and can be brought up to date.
        only_again: bool,
    },
    /// Copies a member to another device, which then takes its place.
    Replace {
        /// The device of the member to be replaced.
        device: PathBuf,
        /// The other one.
        with: PathBuf,
        /// Whether the content of the new device may be lost.
        force: bool,
    },
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// The state.
    Detail(Box<Detail>),
    /// The request was carried out, or the work was begun.
    Done {
        /// A text for people about what was done.
        said: String,
    },
    /// Something happened.
    Event(ArrayEvent),
    /// The request failed.
    Failed(Failure),
}

/// An error as text, for a reply.
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
    /// Converts the text back to an error.
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
