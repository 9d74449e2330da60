//! The cost of requests to buckets, and the expected cost of a verb, by the prices in the config
//! file.

use std::collections::BTreeMap;

use pinstripe::Store;
use pinstripe_base::error::Result;
use pinstripe_base::units::format_size;
use pinstripe_bucket::Requests;

use super::context::Run;
use super::remote::PackPlan;
use crate::config::{Money, PriceEntry};
use crate::event::Event;
use crate::run::screen::Priority;

/// The number of requests that a price of requests is for.
const REQUESTS: u64 = 1000;
/// The number of bytes in a GB, as providers count.
const GB: u64 = 1_000_000_000;
/// The number of bytes that one request for content fetches.
const READ_BYTES: u64 = 4 << 20;

/// An amount of money: once, and each month.
#[derive(Debug, Clone, Copy, Default)]
struct MoneyCost {
    once: Money,
    monthly: Money,
}

/// The cost of requests that were made.
fn of_requests(prices: &PriceEntry, requests: &Requests) -> Money {
    let classes = [
        (prices.put, requests.puts),
        (prices.get, requests.gets),
        (prices.list, requests.lists),
        (prices.delete, requests.deletes),
    ];
    let each = classes.into_iter().map(|(price, count)| price.times(count, REQUESTS));
    each.sum::<Money>() + prices.gb_out.times(requests.received_bytes, GB)
}

/// The cost of a plan at one member: one of `members`, which takes one of `data` parts of each
/// pack.
fn of_plan(
    prices: &PriceEntry,
    plan: &PackPlan,
    data: u64,
    members: u64,
    extent: u64,
) -> MoneyCost {
    let (written, read) = (plan.written_bytes / data, plan.read_bytes / data);
    // The class of the other requests is not known: each is counted as the dearest.
    let dearest = [prices.put, prices.get, prices.list].into_iter().max_by_key(|it| it.0);
    let once = prices.put.times(written.div_ceil(extent.max(1)), REQUESTS)
        + dearest.unwrap_or_default().times(plan.requests_beside, REQUESTS)
        + prices.get.times(read.div_ceil(READ_BYTES), REQUESTS)
        + prices.gb_out.times(read, GB)
        + prices.delete.times(plan.deleted_packs, REQUESTS);
    let freed = prices.gb_month.times(plan.deleted_bytes / members, GB);
    let monthly = Money(prices.gb_month.times(written, GB).0 - freed.0);
    MoneyCost { once, monthly }
}

impl Run {
    /// Adds the cost of the requests so far to the summary, and prints it; does nothing if the
    /// config file has no prices.
    pub(super) fn add_price(&self, summary: Event) -> Event {
        let Ok(config) = self.config() else { return summary };
        if config.prices.is_empty() {
            return summary;
        }
        let (mut price, mut currency, mut unknown) = (Money::default(), None, Vec::new());
        for (url, requests) in self.buckets().requests_by_endpoint() {
            match config.prices_of(&url) {
                _ if requests == Requests::default() => {}
                Some(prices) => {
                    price = price + of_requests(prices, &requests);
                    currency = Some(prices.currency.clone());
                }
                None => unknown.push(url),
            }
        }
        if !self.common.quiet && !self.common.json {
            let shown = currency.as_ref().map(|currency| format!("{price} {currency}"));
            let shown = shown.unwrap_or_else(|| "not known".to_owned());
            let besides = match unknown.len() {
                0 => String::new(),
                _ => format!("; the config file has no prices for {}", unknown.join(", ")),
            };
            self.screen.complain(
                Priority::Info,
                &format!("pinstripe: price of the requests of this run: {shown}{besides}"),
            );
        }
        let summary = summary.with_some("request_price", currency.is_some().then(|| price.value()));
        let summary = summary.with_some("price_currency", currency);
        match unknown.is_empty() {
            true => summary,
            false => summary.with("price_unknown_endpoints", unknown),
        }
    }

    /// Prints the expected cost of a plan, as far as it concerns buckets with prices, and returns
    /// it as facts of the summary.
    ///
    /// # Errors
    /// Fails with the errors of the config file.
    pub(super) fn cost_of_plan(&self, store: &Store, plan: &PackPlan) -> Result<Event> {
        let config = self.config()?;
        let takers: Vec<_> = store.takers().into_iter().flatten().collect();
        let members = takers.len().max(1) as u64;
        let data = members.saturating_sub(u64::from(store.config.parity)).max(1);
        let mut costs: BTreeMap<&str, MoneyCost> = BTreeMap::new();
        for member in &takers {
            let Some(far) = member.caps().far else { continue };
            let Ok(url) = self.buckets().endpoint_of(member.place()) else { continue };
            let Some(prices) = config.prices_of(&url) else { continue };
            let cost = of_plan(prices, plan, data, members, far.extent_bytes);
            let sum = costs.entry(&prices.currency).or_default();
            *sum = MoneyCost { once: sum.once + cost.once, monthly: sum.monthly + cost.monthly };
        }
        let Some((currency, MoneyCost { once, monthly })) = costs.into_iter().next() else {
            return Ok(Event::default());
        };
        self.screen.say(&format!(
            "expected cost: at most about {once} {currency} for requests and traffic, and \
             {monthly} {currency} per month for stored data ({} added, {} removed)",
            format_size(plan.written_bytes / data * members),
            format_size(plan.deleted_bytes),
        ));
        let facts = Event::default().with("cost_once", once.value());
        Ok(facts.with("cost_monthly", monthly.value()).with("price_currency", currency))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prices() -> PriceEntry {
        PriceEntry {
            endpoint: None,
            currency: "USD".to_owned(),
            put: Money(5_000_000),
            get: Money(400_000),
            list: Money(5_000_000),
            delete: Money(0),
            gb_out: Money(90_000_000),
            gb_month: Money(23_000_000),
        }
    }

    #[test]
    fn requests_cost_by_their_class() {
        let requests = Requests {
            puts: 1000,
            gets: 10_000,
            lists: 2000,
            deletes: 500,
            received_bytes: 2 * GB,
            ..Requests::default()
        };
        // 0.005 + 0.004 + 0.010 + 0.180
        assert_eq!(of_requests(&prices(), &requests).to_string(), "0.1990");
    }

    #[test]
    fn a_plan_costs_once_and_each_month() {
        let plan = PackPlan { written_bytes: 300 * GB, ..PackPlan::default() };
        let cost = of_plan(&prices(), &plan, 3, 4, 16 << 20);
        assert_eq!(cost.monthly.to_string(), "2.30");
        assert_eq!(cost.once.to_string(), "0.0298");
        let plan = PackPlan { requests_beside: 60, ..PackPlan::default() };
        let cost = of_plan(&prices(), &plan, 3, 4, 16 << 20);
        assert_eq!(cost.once.to_string(), "0.000300", "a backup of which all is stored costs, too");
        let plan = PackPlan { deleted_packs: 10, deleted_bytes: 400 * GB, ..PackPlan::default() };
        let cost = of_plan(&prices(), &plan, 3, 4, 16 << 20);
        assert_eq!((cost.once.to_string(), cost.monthly.to_string()), ("0".into(), "-2.30".into()));
    }
}
