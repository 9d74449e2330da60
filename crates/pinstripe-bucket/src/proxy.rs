//! The proxy through which requests to an endpoint go, by the environment, for messages only. The HTTP
//! client reads the same variables itself.

/// The proxy for an endpoint, without its password, and the variable that names it; `variable` returns
/// the value of an environment variable.
pub fn proxy_of(endpoint: &str, variable: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let (scheme, rest) = endpoint.split_once("://")?;
    let names = match scheme {
        "https" => ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"],
        _ => ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"],
    };
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let except = set("no_proxy").or_else(|| set("NO_PROXY")).unwrap_or_default();
    if is_excepted(host(rest), &except) {
        return None;
    }
    let (name, url) = names.into_iter().find_map(|name| Some((name, set(name)?)))?;
    Some(format!("{} ({name})", without_password(&url)))
}

/// The host in the part of a URL behind the scheme.
fn host(rest: &str) -> &str {
    let authority = rest.split('/').next().unwrap_or_default();
    match authority.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

/// Whether `NO_PROXY` lists a host: by itself, by a domain that it is in, or by `*`.
fn is_excepted(host: &str, except: &str) -> bool {
    let mut parts = except.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.any(|part| {
        let domain = part.trim_start_matches('.');
        let is_below = host.strip_suffix(domain).is_some_and(|it| it.ends_with('.'));
        part == "*" || host.eq_ignore_ascii_case(domain) || is_below
    })
}

fn without_password(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        (None, Some((_, host))) => host.to_owned(),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_named_without_its_password_and_not_for_excepted_hosts() {
        let named = |endpoint: &str, except: &'static str| {
            let variable = move |name: &str| match name {
                "HTTP_PROXY" => Some("http://user:secret@proxy:3128".to_owned()),
                "NO_PROXY" => Some(except.to_owned()),
                _ => None,
            };
            proxy_of(endpoint, &variable)
        };
        let proxy = Some("http://proxy:3128 (HTTP_PROXY)".to_owned());
        assert_eq!(named("http://s3.example.com:9000", ""), proxy);
        assert_eq!(named("http://s3.example.com", "ample.com, other"), proxy);
        assert_eq!(named("https://s3.example.com", ""), None);
        for except in ["*", "s3.example.com", ".example.com", "other, example.com"] {
            assert_eq!(named("http://s3.example.com:9000", except), None, "{except}");
        }
        assert_eq!(named("http://[::1]:9000", "::1"), None);
    }
}
