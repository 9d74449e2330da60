//! Puts and removes small objects on several members by one request.
//!
//! Each object is judged as in a request of its own. The first member decides a put: the object
//! reaches the others when the first has it, and no other member if the first has another object of
//! this name. A step is begun when the step before is done on all members.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use futures_util::future::join_all;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::{ExtentName, Member, SharedMember};
use pinstripe_remote::{
    OBJECTS_MAX_BYTES, ObjectStep, ObjectsRequest, SUM_HEADER, StepResult, sum_of,
};

use crate::answer::bytes;
use crate::app::App;
use crate::body::Pieces;
use crate::extent::{accept_object, end_put, length_of, wrong_sum};
use crate::look;
use crate::role::Deed;
use crate::tokens::HostToken;

/// Carries out the steps of a request, and answers with their results.
pub(crate) async fn objects(
    app: &Arc<App>,
    token: &HostToken,
    served: usize,
    request: Request,
) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let length = length_of(&parts.headers, OBJECTS_MAX_BYTES as u64)?;
    let body = Pieces::new(body, length).whole().await?;
    let sum = parts.headers.get(SUM_HEADER).and_then(|value| value.to_str().ok());
    if sum.is_some_and(|sum| sum != sum_of(&body)) {
        return Err(wrong_sum());
    }
    let request =
        ObjectsRequest::decode(&body).map_err(|error| Error::new(Kind::Usage, error.what()))?;
    let volume = app.volumes[served].volume();
    let members = request.members.iter().map(|number| volume.member(*number).cloned());
    let members = members.collect::<Result<Vec<_>>>()?;
    let work = Work { app, token, served, members };
    let (mut out, mut goes_on) = (Vec::new(), true);
    for step in &request.steps {
        let results = match goes_on {
            true => work.carry_out(step).await,
            false => work.not_tried(),
        };
        goes_on &= results.iter().all(|it| it.is_done);
        results.iter().for_each(|it| it.result.encode(&mut out));
    }
    if let Some(look) = request.look.filter(|_| goes_on) {
        out.extend(look::answer(app, token, served, look).await?);
    }
    Ok(bytes(out))
}

/// The members on which steps are carried out, and the token that asks for it.
struct Work<'a> {
    app: &'a Arc<App>,
    token: &'a HostToken,
    served: usize,
    members: Vec<SharedMember>,
}

/// The result of a step on a member, and whether the next step may rely on it.
struct MemberResult {
    result: StepResult,
    is_done: bool,
}

impl MemberResult {
    fn not_tried() -> Self {
        MemberResult { result: StepResult::NotTried, is_done: false }
    }

    fn failed(error: Error) -> Self {
        MemberResult { result: StepResult::Failed(error), is_done: false }
    }

    fn of(result: Result<()>) -> Self {
        match result {
            Ok(()) => MemberResult { result: StepResult::Done, is_done: true },
            Err(error) => Self::failed(error),
        }
    }
}

impl Work<'_> {
    fn not_tried(&self) -> Vec<MemberResult> {
        self.members.iter().map(|_| MemberResult::not_tried()).collect()
    }

    /// Carries out a step, if the token's role allows it.
    async fn carry_out(&self, step: &ObjectStep) -> Vec<MemberResult> {
        let done = match step {
            ObjectStep::Put(name, content) => self.put(*name, content).await,
            ObjectStep::Delete(name) => self.delete(*name).await,
        };
        done.unwrap_or_else(|error| {
            let failed = |_| MemberResult::failed(error.duplicate());
            self.members.iter().map(failed).collect()
        })
    }

    async fn put(&self, name: ExtentName, content: &[u8]) -> Result<Vec<MemberResult>> {
        let Work { app, token, served, members } = self;
        app.require_of(token, *served, Deed::Create, name)?;
        // Extents of stripe sets have requests of their own, where the quota counts.
        if name.is_of_set() {
            return Err(Error::new(Kind::Usage, "an extent of a stripe set is not a small object"));
        }
        accept_object(app, token, *served, name, content).await?;
        let content: Arc<[u8]> = content.into();
        let mut results = Vec::with_capacity(members.len());
        for member in members {
            let put = put_on(app, member, name, &content).await;
            let has_decided = matches!(put.result, StepResult::Done);
            let is_lost = !put.is_done && is_exists(&put.result);
            results.push(put);
            if is_lost {
                break;
            }
            if has_decided {
                let others = &members[results.len()..];
                let puts = others.iter().map(|member| put_on(app, member, name, &content));
                results.extend(join_all(puts).await);
                break;
            }
        }
        results.resize_with(members.len(), MemberResult::not_tried);
        end_put(app, *served, name, results.iter().any(|it| it.is_done)).await;
        Ok(results)
    }

    async fn delete(&self, name: ExtentName) -> Result<Vec<MemberResult>> {
        let Work { app, token, served, members } = self;
        app.require_of(token, *served, Deed::Delete, name)?;
        let delete = |member: &SharedMember| {
            let member = Arc::clone(member);
            app.call(move || member.delete(name))
        };
        let deleted = join_all(members.iter().map(delete)).await;
        if deleted.iter().any(Result::is_ok) {
            app.volumes[*served].ledger.forget(name);
        }
        Ok(deleted.into_iter().map(MemberResult::of).collect())
    }
}

fn is_exists(result: &StepResult) -> bool {
    matches!(result, StepResult::Failed(error) if error.kind() == Kind::Exists)
}

/// Puts an object on a member. It is also done if the member has the same object already.
async fn put_on(
    app: &Arc<App>,
    member: &SharedMember,
    name: ExtentName,
    content: &Arc<[u8]>,
) -> MemberResult {
    let (member, content) = (Arc::clone(member), Arc::clone(content));
    let put = app.call(move || {
        Ok(match member.put(name, &content) {
            Err(error) if error.kind() == Kind::Exists => {
                let is_done = has(&*member, name, &content);
                MemberResult { result: StepResult::Failed(error), is_done }
            }
            put => MemberResult::of(put),
        })
    });
    put.await.unwrap_or_else(MemberResult::failed)
}

fn has(member: &dyn Member, name: ExtentName, content: &[u8]) -> bool {
    let mut there = vec![0; content.len()];
    member.len(name).is_ok_and(|length| length == content.len() as u64)
        && member.read_at(name, 0, &mut there).is_ok()
        && there == content
}
