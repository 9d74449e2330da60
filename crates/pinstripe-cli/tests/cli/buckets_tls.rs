//! Endpoints with TLS whose certificate no authority of the system has signed.

use std::process::Command;

use crate::buckets::Cloud;
use crate::stand::ran;

/// A certificate for the loopback, signed by itself, and its key; `None` where no program makes them.
fn certified(test: &str, cloud: &Cloud) -> Option<[String; 2]> {
    let paths = ["tls.pem", "tls.key"].map(|it| cloud.stand.path(it).to_str().unwrap().to_owned());
    let request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
                   -subj /CN=pinstripe-tests -addext subjectAltName=IP:127.0.0.1 \
                   -addext basicConstraints=critical,CA:FALSE";
    let made = Command::new("openssl")
        .args(request.split_whitespace())
        .args(["-out", &paths[0], "-keyout", &paths[1]])
        .output();
    match made {
        Ok(made) => {
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            Some(paths)
        }
        Err(error) => {
            pinstripe_testing::not_installed(test, &format!("openssl ({error})"));
            None
        }
    }
}

#[test]
fn an_endpoint_is_trusted_by_the_authority_that_is_named_and_by_no_other() {
    let test = "an_endpoint_is_trusted_by_the_authority_that_is_named";
    let Some(mut cloud) = Cloud::new(test, 1) else { return };
    let Some([certificate, key]) = certified(test, &cloud) else { return };
    cloud.servers[0].restart(&["--cert", &certificate, "--key", &key]);
    let place = cloud.place(0, "s").replacen("s3+http:", "s3+https:", 1);
    let init = format!("init --member {place} --encryption none");
    let asked = |bundle: &str, line: &str| ran(cloud.command(line).env("AWS_CA_BUNDLE", bundle));

    let strange = cloud.run(&init);
    assert_eq!(strange.code, 1, "{}", strange.err);
    assert!(strange.err.contains("certificate: UnknownIssuer"), "{}", strange.err);
    assert!(strange.err.contains("AWS_CA_BUNDLE"), "{}", strange.err);
    let missing = asked("/nonexistent/bundle.pem", &init);
    assert!(missing.err.contains("/nonexistent/bundle.pem"), "{}", missing.err);
    let no_bundle = asked(&key, &init);
    assert!(no_bundle.err.contains("contains no certificate"), "{}", no_bundle.err);

    let long = cloud.stand.path("long.pem");
    std::fs::write(&long, vec![b'\n'; (1 << 20) + 1]).unwrap();
    let too_long = asked(long.to_str().unwrap(), &init);
    assert!(too_long.err.contains("CA bundle is too long"), "{}", too_long.err);

    let made = asked(&certificate, &init);
    assert_eq!(made.code, 0, "{}", made.err);
    // Another name of the same host is not the one that was certified.
    let renamed = asked(&certificate, &init.replace("127.0.0.1", "localhost"));
    assert!(renamed.err.contains("certificate"), "{}", renamed.err);
    // A profile can name it, too.
    let profile = format!("[default]\nca_bundle = {certificate}\n");
    std::fs::create_dir_all(cloud.stand.path("home/.aws")).unwrap();
    std::fs::write(cloud.stand.path("home/.aws/config"), profile).unwrap();
    cloud.done(&format!("backup src --store {place}"));
    cloud.assert_restored(&place, "out");
}
