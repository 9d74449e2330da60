//! Endpoints that a store of many writers must not stand on are found out.

use std::path::Path;
use std::sync::Arc;

use pinstripe_bucket::Buckets;
use pinstripe_member::RemoteMembers;

use crate::endpoint::{Client, Endpoint, Line};

fn missing(endpoint: &Arc<Endpoint>) -> Option<&'static str> {
    let (endpoint, line) = (Arc::clone(endpoint), Line::new());
    let client = Client { endpoint, line, sent: Arc::default() };
    let buckets = Buckets::over(move |_| Arc::new(client.clone()));
    let place = Path::new("s3+http://e0/bucket/p");
    buckets.create(place).unwrap();
    let report = buckets.probe(place).unwrap();
    report.missing().map(|ability| ability.what)
}

#[test]
fn listings_that_are_late_are_found_out_and_lost_answers_are_none_of_the_endpoints_faults() {
    let (found, _) = pinstripe_schedule::scheduled(5, || {
        let strange = Endpoint::new(5);
        let stale = Endpoint::new(6);
        stale.set_calm(true);
        stale.list_stale();
        [missing(&strange), missing(&stale)]
    });
    assert_eq!(found, [None, Some("listings after a put")]);
}
