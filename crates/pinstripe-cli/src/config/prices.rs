//! The prices of bucket providers in the config file.

use std::fmt;

use pinstripe_base::error::Result;
use serde::{Serialize, Serializer};

use super::reader::Table;

/// An amount of money, in billionths of its currency: a request costs a few millionths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Money(pub i128);

/// Billionths.
const NANO: f64 = 1e9;
/// The highest accepted price; a higher one is a typing error.
const MOST: f64 = 1e9;

impl Money {
    /// The cost of `count` units at this price for every `per` units.
    #[cfg_attr(not(feature = "s3"), allow(dead_code, reason = "buckets cost"))]
    pub fn times(self, count: u64, per: u64) -> Money {
        Money(self.0 * i128::from(count) / i128::from(per.max(1)))
    }

    /// The amount as a number of whole units of the currency.
    pub fn value(self) -> f64 {
        self.0 as f64 / NANO
    }
}

impl std::ops::Add for Money {
    type Output = Money;

    fn add(self, other: Money) -> Money {
        Money(self.0 + other.0)
    }
}

impl std::iter::Sum for Money {
    fn sum<I: Iterator<Item = Money>>(all: I) -> Money {
        Money(all.map(|money| money.0).sum())
    }
}

impl fmt::Display for Money {
    /// Prints hundredths; small amounts get as many digits as are significant.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value();
        match value.abs() {
            zero if zero < 0.000_000_5 => write!(f, "0"),
            small if small < 0.01 => write!(f, "{value:.6}"),
            small if small < 1.0 => write!(f, "{value:.4}"),
            _ => write!(f, "{value:.2}"),
        }
    }
}

impl Serialize for Money {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_f64(self.value())
    }
}

/// The prices of one provider.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PriceEntry {
    /// The endpoint's URL; without a URL, these are the prices of all endpoints that have no prices
    /// of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The name of the currency.
    pub currency: String,
    /// The price of 1000 PUT and POST requests.
    pub put: Money,
    /// The price of 1000 GET and HEAD requests.
    pub get: Money,
    /// The price of 1000 pages of listings.
    pub list: Money,
    /// 1000 requests DELETE.
    pub delete: Money,
    /// The price of a GB (10^9 bytes) that leaves the provider.
    pub gb_out: Money,
    /// The price of storing a GB for a month.
    pub gb_month: Money,
}

/// Reads a table `[price.NAME]`.
pub fn entry(mut table: Table<'_>) -> Result<PriceEntry> {
    let endpoint = table.string("endpoint")?;
    if let Some(url) = &endpoint
        && !(url.starts_with("https://") || url.starts_with("http://"))
    {
        return Err(table
            .error("endpoint", "the endpoint must be a URL")
            .expected("https://HOST", format!("'{url}'")));
    }
    let endpoint = endpoint.map(|url| url.trim_end_matches('/').to_ascii_lowercase());
    let currency = table.string("currency")?.unwrap_or_else(|| "USD".to_owned());
    let entry = PriceEntry {
        endpoint,
        currency,
        put: money(&mut table, "put")?,
        get: money(&mut table, "get")?,
        list: money(&mut table, "list")?,
        delete: money(&mut table, "delete")?,
        gb_out: money(&mut table, "gb-out")?,
        gb_month: money(&mut table, "gb-month")?,
    };
    table.finish()?;
    Ok(entry)
}

fn money(table: &mut Table<'_>, key: &'static str) -> Result<Money> {
    let Some(price) = table.amount(key)? else { return Ok(Money::default()) };
    if price > MOST {
        return Err(table
            .error(key, "this number is not a possible price")
            .expected("a price of at most a billion", price));
    }
    Ok(Money((price * NANO).round() as i128))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_exact_and_readable() {
        let put = Money(5_000_000);
        assert_eq!(put.times(1_000_000, 1000).to_string(), "5.00");
        assert_eq!(put.times(15, 1000).to_string(), "0.000075");
        assert_eq!(put.times(0, 1000).to_string(), "0");
        assert_eq!(Money(-230_000_000).to_string(), "-0.2300");
        assert_eq!(put.times(u64::MAX, 1).0, i128::from(u64::MAX) * 5_000_000);
        assert_eq!([put, put].into_iter().sum::<Money>(), Money(10_000_000));
    }
}
