//! The plan of a read: from the shard itself if it is intact, otherwise from the rest of the row.

use super::sweep::Segment;
use super::view::{Sources, View};
use super::{Class, Method, PlanPiece, RowPlan};
use crate::set::ShardSet;
use pinstripe_base::error::Result;

pub(super) fn plan(view: &View, segments: &[Segment], plan: &mut RowPlan) -> Result<()> {
    for segment in segments {
        let wanted = segment.class(Class::Wanted);
        if wanted.is_empty() {
            continue;
        }
        let sources = view.sources(segment);
        let needed = match view.mirrors {
            true => mirrored(view, wanted, &sources),
            false => coded(view, wanted, &sources),
        };
        let needed = needed.ok_or_else(|| view.too_many(segment))?;
        let method = match wanted.and(sources.lost).is_empty() {
            true => Method::Read,
            false => Method::Rebuild,
        };
        let piece = PlanPiece::new(segment, method).need(needed, &sources);
        plan.push(PlanPiece { wanted, ..piece });
    }
    Ok(())
}

/// The shards that must be read to get the wanted ones. Lost parity is computed from all data.
fn coded(view: &View, wanted: ShardSet, sources: &Sources) -> Option<ShardSet> {
    match wanted.and(sources.lost).is_empty() {
        true => Some(wanted),
        false => view.solution(sources).map(|solution| solution.or(wanted)),
    }
}

/// The copies that must be read to get the wanted ones.
fn mirrored(view: &View, wanted: ShardSet, sources: &Sources) -> Option<ShardSet> {
    if wanted.and(sources.lost).minus(sources.cached).is_empty() {
        return Some(wanted);
    }
    let there = wanted.minus(sources.lost);
    let from = if there.is_empty() { view.copy_to_read(sources)? } else { there };
    Some(from.or(wanted))
}
