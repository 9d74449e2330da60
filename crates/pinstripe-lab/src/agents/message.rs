//! The messages between a coordinator and an agent: JSON in the frames of [`frame`](super::frame).
//!
//! A coordinator makes one request at a time, and the agent answers it, with success or a failure.
//! In addition, coordinator and agent send a heartbeat every second, clocks may be requested at any
//! time, and [`AgentRequest::Stop`] ends the agent's work.
//!
//! Invariants: decoded data is bounded: the length of names, the number of items, and the number of
//! histograms, which are larger in memory than as text. A run that an agent reports is only shown
//! and added to others.

use pinstripe_base::error::{Error, Kind, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fingerprint::Fingerprint;
use crate::result::{Parameter, Run, Variant};

/// The most variants of a plan.
const MOST_VARIANTS: usize = 4096;
/// The most histograms in a message: a run has a few, one for each kind of request.
const MOST_HISTOGRAMS: usize = 64;
/// The most samples of a run over time; an agent keeps half of this number.
const MOST_SAMPLES: usize = 1024;

/// From a coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AgentRequest {
    /// The coordinator is alive.
    Alive,
    /// Ends the agent's work; the pending request fails.
    Stop,
    /// Asks for the time by the agent's clock.
    Clock,
    /// Asks the agent to plan the case.
    Plan(Assignment),
    /// Asks the agent to prepare for all runs.
    Prepare,
    /// Asks the agent to prepare for the next run of this variant.
    Ready {
        /// The number of the variant.
        variant: usize,
    },
    /// Asks the agent to start the run that was prepared.
    Start {
        /// The number of the run; it makes random choices differ from run to run.
        order: u64,
        /// When the run starts, by the agent's clock that is never set back.
        at_ns: u64,
        /// Whether the run is a warm-up, whose results are discarded.
        is_warm_up: bool,
    },
    /// Asks the agent to check the result of the run.
    Check,
    /// Asks the agent to remove everything that it created.
    Clean,
}

impl AgentRequest {
    /// Whether this answer is what an agent sends when it has done what was asked.
    pub(crate) fn is_answered_by(&self, answer: &AgentReply) -> bool {
        match self {
            AgentRequest::Alive | AgentRequest::Stop => false,
            AgentRequest::Clock => matches!(answer, AgentReply::Clock { .. }),
            AgentRequest::Plan(_) => matches!(answer, AgentReply::Planned(_)),
            AgentRequest::Start { is_warm_up, .. } => {
                matches!(answer, AgentReply::Ran { run, .. } if run.is_none() == *is_warm_up)
            }
            AgentRequest::Prepare
            | AgentRequest::Ready { .. }
            | AgentRequest::Check
            | AgentRequest::Clean => {
                matches!(answer, AgentReply::Done { .. })
            }
        }
    }
}

/// A case with the settings that determine its plan.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// The name of the case.
    pub case: String,
    /// The options as the user typed them: name and value.
    pub options: Vec<(String, String)>,
    /// Directories of the agent: full paths, or names below the agent's first directory. If the
    /// list is empty, the agent's first directory itself is used.
    pub dirs: Vec<String>,
    /// A device of the agent.
    pub device: Option<String>,
    /// The seed of all random choices.
    pub seed: u64,
    /// Seconds to wait for a quiet machine before each run.
    pub patience_s: f64,
}

/// From an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AgentReply {
    /// The agent is alive.
    Alive {
        /// Bytes moved so far.
        bytes: u64,
        /// Items processed so far.
        items: u64,
    },
    /// The time by the agent's clock.
    Clock {
        /// When the question arrived, in nanoseconds of a clock that is never set back.
        received_ns: u64,
        /// When this answer was sent, in nanoseconds of the same clock.
        answered_ns: u64,
        /// How far the time of day, in nanoseconds since 1970, is ahead of the agent's clock.
        wall_ahead_ns: i64,
    },
    /// The plan that was made.
    Planned(Box<Planned>),
    /// The request was carried out; contains the notes on all results as they are now.
    Done {
        /// For people.
        notes: Vec<String>,
    },
    /// The run has ended.
    Ran {
        /// When the run began, by the agent's clock that is never set back.
        began_ns: u64,
        /// The measured run; `None` for a warm-up.
        run: Option<Box<Run>>,
    },
    /// The request could not be carried out.
    Failed(AgentError),
}

/// A plan as the agent made it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Planned {
    /// The program and its version.
    pub program: String,
    /// The name that the machine has for itself.
    pub name: String,
    /// The machine and the places that will be measured.
    pub fingerprint: Fingerprint,
    /// Every parameter.
    pub parameters: Vec<Parameter>,
    /// The variants, without runs.
    pub variants: Vec<Variant>,
    /// Whether the values are counts and so exact.
    pub is_exact: bool,
    /// Descriptions of the files that will be created and of the files and devices that will be
    /// overwritten.
    pub intents: Vec<String>,
    /// Notes on all results, for people.
    pub notes: Vec<String>,
}

/// An error of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentError {
    /// The name of the error's kind.
    pub kind: String,
    /// The full text of the error, for people.
    pub what: String,
    /// Advice for the user.
    pub advice: Option<String>,
}

impl AgentError {
    /// Converts an error to the form in which it is sent.
    pub fn from_error(error: &Error) -> AgentError {
        AgentError {
            kind: error.kind().name().to_owned(),
            what: error.to_string(),
            advice: error.advice_text().map(str::to_owned),
        }
    }

    /// The error again.
    pub fn error(&self) -> Error {
        let kind = Kind::from_name(&self.kind).unwrap_or(Kind::Io);
        let error = Error::new(kind, self.what.clone());
        match &self.advice {
            Some(advice) => error.advice(advice.clone()),
            None => error,
        }
    }
}

/// Encodes a message as the payload of a frame.
///
/// # Errors
/// [`Kind::Io`] for a message that JSON cannot represent.
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(message)
        .map_err(|error| Error::new(Kind::Io, format!("cannot encode a message: {error}")))
}

/// Decodes a message of a coordinator.
///
/// # Errors
/// [`Kind::Corrupt`] if the message is invalid.
pub fn decode_ask(payload: &[u8]) -> Result<AgentRequest> {
    decode(payload)
}

/// Decodes a message of an agent.
///
/// # Errors
/// [`Kind::Corrupt`] if the message is invalid, or larger than permitted.
pub fn decode_answer(payload: &[u8]) -> Result<AgentReply> {
    let answer: AgentReply = decode(payload)?;
    let is_sound = match &answer {
        AgentReply::Planned(planned) => {
            let variants = &planned.variants;
            (1..=MOST_VARIANTS).contains(&variants.len())
                && variants.iter().all(|it| it.runs.is_empty())
        }
        AgentReply::Ran { run: Some(run), .. } => is_run(run),
        _ => true,
    };
    match is_sound {
        true => Ok(answer),
        false => Err(Error::new(Kind::Corrupt, "the agent sent impossible results")),
    }
}

/// Whether a decoded run is plausible: it is from one machine, and its times and amounts are
/// possible.
fn is_run(run: &Run) -> bool {
    let times = [run.seconds, run.at_s, run.cpu_s];
    run.parts.is_empty()
        && run.samples.len() <= MOST_SAMPLES
        && times.iter().all(|it| it.is_finite() && *it >= 0.0)
        && run.measured.value.is_finite()
}

fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T> {
    let wrong = |error: serde_json::Error| {
        Error::new(Kind::Corrupt, format!("the peer sent an invalid message: {error}"))
    };
    let value: Value = serde_json::from_slice(payload).map_err(wrong)?;
    if histograms(&value) > MOST_HISTOGRAMS {
        return Err(Error::new(Kind::Corrupt, "the peer sent more histograms than a run can have"));
    }
    serde_json::from_value(value).map_err(wrong)
}

/// The number of objects in a JSON value that will be decoded as histograms. The JSON parser limits
/// the depth of the value.
fn histograms(value: &Value) -> usize {
    match value {
        Value::Object(fields) => {
            let own = usize::from(fields.contains_key("buckets_ns"));
            own + fields.values().map(histograms).sum::<usize>()
        }
        Value::Array(items) => items.iter().map(histograms).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::results;

    #[test]
    fn messages_are_read_back() {
        let results = results(&[("a", &[1.5])]);
        let run = results.variants[0].runs[0].clone();
        let asks = [
            AgentRequest::Alive,
            AgentRequest::Plan(Assignment { case: "walk".to_owned(), ..Assignment::default() }),
            AgentRequest::Start { order: u64::MAX, at_ns: u64::MAX, is_warm_up: true },
        ];
        for ask in asks {
            assert_eq!(decode_ask(&encode(&ask).unwrap()).unwrap(), ask);
        }
        let failure =
            AgentError::from_error(&Error::new(Kind::NoSpace, "is full").advice("make room"));
        assert_eq!(failure.error().kind(), Kind::NoSpace);
        assert_eq!(failure.error().advice_text(), Some("make room"));
        let answers = [
            AgentReply::Clock { received_ns: 1, answered_ns: 2, wall_ahead_ns: -3 },
            AgentReply::Ran { began_ns: 5, run: Some(Box::new(run)) },
            AgentReply::Failed(failure),
        ];
        for answer in answers {
            assert_eq!(decode_answer(&encode(&answer).unwrap()).unwrap(), answer);
        }
    }

    #[test]
    fn what_is_no_message_or_too_much_is_refused() {
        for text in
            ["", "{", "null", "\"bye\"", "{\"ready\":{}}", "{\"ready\":{\"variant\":-1}}", "[[[["]
        {
            assert_eq!(decode_ask(text.as_bytes()).unwrap_err().kind(), Kind::Corrupt, "{text}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(decode_answer(deep.as_bytes()).unwrap_err().kind(), Kind::Corrupt);
        let results = results(&[("a", &[1.5])]);
        let sound = results.variants[0].runs[0].clone();
        let refused = |change: &dyn Fn(&mut Run)| {
            let mut run = sound.clone();
            change(&mut run);
            let answer = AgentReply::Ran { began_ns: 5, run: Some(Box::new(run)) };
            decode_answer(&encode(&answer).unwrap()).map(drop).unwrap_err().kind()
        };
        let histogram = sound.measured.latency["write"].clone();
        let many = |run: &mut Run| {
            let names = (0..MOST_HISTOGRAMS).map(|it| (it.to_string(), histogram.clone()));
            run.measured.latency.extend(names);
        };
        assert_eq!(refused(&many), Kind::Corrupt);
        assert_eq!(refused(&|run| run.seconds = -1.0), Kind::Corrupt);
        assert_eq!(refused(&|run| run.measured.value = f64::NAN), Kind::Corrupt);
        assert_eq!(refused(&|run| run.samples = vec![run.samples[0]; 2000]), Kind::Corrupt);
        let part = crate::result::Part { host: 0, began_s: 0.0, run: None };
        assert_eq!(refused(&|run| run.parts = vec![part.clone()]), Kind::Corrupt);
    }
}
