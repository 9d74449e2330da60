//! Signed URLs of objects, by version 4 of AWS's signatures: for a client of one request.

use aws_lc_rs::{digest, hmac};
use pinstripe_base::id::hex;

use pinstripe_testing::{BUCKET, KEY_ID, KEY_SECRET};

/// The region that everything is signed for.
const REGION: &str = "us-east-1";
/// Seconds that a URL is good for.
const EXPIRES: u32 = 3600;

/// Path and query with which a key may be read at `host`, from `time` on, as in `20260131T120000Z`.
pub fn presigned(host: &str, key: &str, time: &str) -> String {
    let day = &time[..8];
    let scope = format!("{day}/{REGION}/s3/aws4_request");
    let path = format!("/{BUCKET}/{key}");
    let query = format!(
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={KEY_ID}%2F{}&X-Amz-Date={time}\
         &X-Amz-Expires={EXPIRES}&X-Amz-SignedHeaders=host",
        scope.replace('/', "%2F")
    );
    let request = format!("GET\n{path}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD");
    let hash = hex(digest::digest(&digest::SHA256, request.as_bytes()).as_ref());
    let said = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hash}");
    let signature = hex(&mac(&signing_key(KEY_SECRET, day, "s3"), said.as_bytes()));
    format!("{path}?{query}&X-Amz-Signature={signature}")
}

fn signing_key(secret: &str, day: &str, service: &str) -> Vec<u8> {
    let key = format!("AWS4{secret}").into_bytes();
    [day, REGION, service, "aws4_request"].iter().fold(key, |key, part| mac(&key, part.as_bytes()))
}

fn mac(key: &[u8], bytes: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), bytes).as_ref().to_vec()
}

/// Now in UTC, as signatures have it.
pub fn now() -> String {
    let seconds = pinstripe_base::clock::now().0;
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Howard Hinnant's days-to-civil, for dates after 1970.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of AWS's documentation of signature version 4: the key of 2015-08-30.
    #[test]
    fn the_signing_key_is_that_of_the_documentation() {
        let key = signing_key("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "20150830", "iam");
        assert_eq!(hex(&key), "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9");
    }

    #[test]
    fn now_is_a_time_of_this_century() {
        let now = now();
        assert_eq!(now.len(), 16);
        assert!(now.starts_with("20") && now.ends_with('Z') && &now[8..9] == "T", "{now}");
    }
}
