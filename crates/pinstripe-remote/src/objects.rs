//! The request that puts and removes small objects on several members at once, and its answer.
//!
//! ```text
//! request  count, members (2 each); count, steps: 0 = put, 1 = removal; kind, name, bytes of a put;
//!          1 and a request for a look, or 0
//! answer   for each step, for each member: 0 = done, 1 and an error, 2 = not tried; the look
//! ```
//!
//! A step is begun when the step before was done on all members; the look is begun after the last
//! step. The first member decides a put: the others get the object when the first has it. A put also
//! counts as done on a member that has the same bytes under this name, although its result is an
//! error.

use pinstripe_base::error::{Error, Result};
use pinstripe_base::wire::{Reader, Writer};
use pinstripe_member::ExtentName;

use crate::look_messages::{LookRequest, MemberLook};
use crate::protocol::{SentError, error_from, kind_number, read_kind};

/// The most bytes of such a request.
pub const OBJECTS_MAX_BYTES: usize = 1 << 20;
/// The most steps of such a request.
pub(crate) const OBJECT_STEPS_MAX: usize = 16;

/// A step of such a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectStep {
    /// Puts an object under a free name.
    Put(ExtentName, Vec<u8>),
    /// Removes an object.
    Delete(ExtentName),
}

impl ObjectStep {
    /// The name of the object.
    #[must_use]
    pub fn name(&self) -> ExtentName {
        match self {
            ObjectStep::Put(name, _) | ObjectStep::Delete(name) => *name,
        }
    }
}

/// A request for several objects on several members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectsRequest {
    /// The members, in the order in which a put reaches them.
    pub members: Vec<u16>,
    /// The steps, in order.
    pub steps: Vec<ObjectStep>,
    /// The look after the last step.
    pub look: Option<LookRequest>,
}

/// The result of a step on a member.
#[derive(Debug)]
pub enum StepResult {
    /// The step is done, durably if it is a put.
    Done,
    /// The step failed.
    Failed(Error),
    /// The step was not begun, because an earlier step, or this one on an earlier member, was not
    /// done.
    NotTried,
}

impl ObjectsRequest {
    /// Encodes the request; `None` if it is too long, or has the label in it.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        writer.varint(self.members.len() as u64);
        for member in &self.members {
            writer.u16(*member);
        }
        writer.varint(self.steps.len() as u64);
        for step in &self.steps {
            let ExtentName::In(kind, id) = step.name() else { return None };
            writer.u8(u8::from(matches!(step, ObjectStep::Delete(_))));
            writer.u8(kind_number(kind)).raw(&id);
            if let ObjectStep::Put(_, bytes) = step {
                writer.bytes(bytes);
            }
        }
        writer.u8(u8::from(self.look.is_some()));
        if let Some(look) = &self.look {
            writer.raw(&look.encode());
        }
        let fits = out.len() <= OBJECTS_MAX_BYTES && self.steps.len() <= OBJECT_STEPS_MAX;
        fits.then_some(out)
    }

    /// Decodes a request.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) for bytes that are not such
    /// a request, and for one that names a member or an object twice.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "request for objects");
        let count = reader.count(2)?;
        let members: Vec<u16> = (0..count).map(|_| reader.u16()).collect::<Result<_>>()?;
        let count = reader.count(18)?;
        if members.is_empty() || count == 0 || count > OBJECT_STEPS_MAX {
            return Err(reader.corrupt("the request has no member, no step, or too many steps"));
        }
        let mut steps: Vec<ObjectStep> = Vec::with_capacity(count);
        for _ in 0..count {
            let flag = reader.u8()?;
            let name = ExtentName::In(read_kind(&mut reader)?, reader.array()?);
            steps.push(match flag {
                0 => ObjectStep::Put(name, reader.bytes()?.to_vec()),
                1 => ObjectStep::Delete(name),
                _ => return Err(reader.corrupt("the request has an unknown step")),
            });
        }
        let is_again = |at: usize| members[..at].contains(&members[at]);
        let is_named = |at: usize| steps[..at].iter().any(|it| it.name() == steps[at].name());
        if (0..members.len()).any(is_again) || (0..steps.len()).any(is_named) {
            return Err(reader.corrupt("the request names a member or an object twice"));
        }
        let look = match reader.u8()? {
            0 => None,
            1 => Some(LookRequest::decode(reader.rest())?),
            _ => return Err(reader.corrupt("a flag of the request is invalid")),
        };
        reader.finish()?;
        Ok(ObjectsRequest { members, steps, look })
    }
}

impl StepResult {
    /// Appends the result to an answer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        match self {
            StepResult::Done => writer.u8(0),
            StepResult::Failed(error) => {
                let text = serde_json::to_vec(&SentError::from_error(error)).unwrap_or_default();
                writer.u8(1).bytes(&text)
            }
            StepResult::NotTried => writer.u8(2),
        };
    }
}

/// The answer: the results of each step by member, in the order of the request, and the look.
pub struct ObjectsAnswer {
    /// By step, and then by member.
    pub results: Vec<Vec<StepResult>>,
    /// The looks that the request asked for.
    pub looks: Vec<MemberLook>,
}

impl ObjectsAnswer {
    /// Decodes the answer to a request with these numbers of steps and members.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) for bytes that do not
    /// answer it.
    pub fn decode(bytes: &[u8], steps: usize, members: usize) -> Result<Self> {
        let mut reader = Reader::new(bytes, "answer to a request for objects");
        let mut results = Vec::with_capacity(steps);
        for _ in 0..steps {
            let mut of_step = Vec::with_capacity(members);
            for _ in 0..members {
                of_step.push(match reader.u8()? {
                    0 => StepResult::Done,
                    1 => StepResult::Failed(error_from(reader.bytes()?)),
                    2 => StepResult::NotTried,
                    _ => return Err(reader.corrupt("the answer has an unknown result")),
                });
            }
            results.push(of_step);
        }
        let looks = MemberLook::decode_all(reader.rest())?;
        Ok(ObjectsAnswer { results, looks })
    }
}

#[cfg(test)]
mod tests {
    use pinstripe_base::error::Kind;
    use pinstripe_member::ExtentKind;

    use super::*;
    use crate::look_messages::WantedKind;

    fn request() -> ObjectsRequest {
        let name = |byte| ExtentName::In(ExtentKind::Sessions, [byte; 16]);
        let kinds = vec![WantedKind::new(ExtentKind::Gc)];
        ObjectsRequest {
            members: vec![2, 0, 1],
            steps: vec![ObjectStep::Put(name(1), b"one".to_vec()), ObjectStep::Delete(name(2))],
            look: Some(LookRequest {
                members: Vec::new(),
                kinds,
                labels: true,
                opened: Vec::new(),
            }),
        }
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let bytes = request().encode().unwrap();
        assert_eq!(ObjectsRequest::decode(&bytes).unwrap(), request());
        for cut in 0..bytes.len() {
            assert!(ObjectsRequest::decode(&bytes[..cut]).is_err(), "{cut}");
        }
        let long = [&bytes[..], b"x"].concat();
        assert!(ObjectsRequest::decode(&long).is_err());
    }

    #[test]
    fn a_request_names_each_member_and_object_once() {
        let refused = |request: &ObjectsRequest| {
            let bytes = request.encode().unwrap();
            assert_eq!(ObjectsRequest::decode(&bytes).unwrap_err().kind(), Kind::Corrupt);
        };
        refused(&ObjectsRequest { members: vec![1, 0, 1], ..request() });
        refused(&ObjectsRequest { members: Vec::new(), ..request() });
        refused(&ObjectsRequest { steps: Vec::new(), ..request() });
        let mut twice = request();
        twice.steps[1] = ObjectStep::Delete(twice.steps[0].name());
        refused(&twice);
        let mut many = request();
        many.steps = vec![many.steps[0].clone(); OBJECT_STEPS_MAX + 1];
        assert_eq!(many.encode(), None);
        let mut label = request();
        label.steps[0] = ObjectStep::Delete(ExtentName::Label);
        assert_eq!(label.encode(), None);
    }

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let results = [
            StepResult::Done,
            StepResult::Failed(Error::new(Kind::Exists, "another")),
            StepResult::NotTried,
            StepResult::Done,
        ];
        let mut bytes = Vec::new();
        results.iter().for_each(|it| it.encode(&mut bytes));
        let read = ObjectsAnswer::decode(&bytes, 2, 2).unwrap();
        assert!(matches!(read.results[0][0], StepResult::Done));
        assert!(
            matches!(&read.results[0][1], StepResult::Failed(error) if error.kind() == Kind::Exists)
        );
        assert!(matches!(read.results[1][0], StepResult::NotTried));
        assert!(ObjectsAnswer::decode(&bytes, 2, 3).is_err());
        assert!(ObjectsAnswer::decode(&bytes[..3], 2, 2).is_err());
    }
}
