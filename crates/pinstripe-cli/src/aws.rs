//! Where credentials and endpoints of buckets come from: the variables and files that all S3 tools
//! share.
//!
//! Invariants: a secret is never an argument, never printed and never in an event. Profiles are
//! only read: no command that a file names is run.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::format_size;
use pinstripe_bucket::{Access, BucketPlace, EndpointDefaults, Provider, Renewal, proxy_of};

use crate::bucket_args::BucketArgs;
use crate::xdg;

/// A longer file is not a file of profiles or of certificate authorities.
const FILE_MAX_BYTES: u64 = 1 << 20;
/// The environment variable, and the key of a profile, that name a file of certificate authorities.
const AUTHORITIES: [&str; 2] = ["AWS_CA_BUNDLE", "ca_bundle"];

/// The environment variables of Google's tools that hold credentials. Unless one of them is set,
/// the machine itself is not asked for credentials.
const GOOGLE: [&str; 4] = [
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
];
/// The environment variable with the endpoint for places at Google, instead of Google's own host.
const GOOGLE_ENDPOINT: &str = "STORAGE_EMULATOR_HOST";
/// The environment variables with the endpoint for places at Azure; the first one that is set is
/// used.
const AZURE_ENDPOINTS: [&str; 2] = ["AZURE_STORAGE_ENDPOINT", "AZURITE_BLOB_STORAGE_URL"];
/// The environment variables with the key of an Azure account, which signs requests and is never
/// sent.
const AZURE_KEYS: [&str; 2] = ["AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY"];
/// The environment variables of Azure's tools that hold credentials.
const AZURE: [&str; 9] = [
    AZURE_KEYS[0],
    AZURE_KEYS[1],
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_TOKEN",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_TENANT_ID",
    "AZURE_FEDERATED_TOKEN_FILE",
];

/// The settings in the environment and in the files of profiles.
#[derive(Default)]
pub struct AwsSettings {
    args: BucketArgs,
    profiles: Vec<Profile>,
    /// The files of the profiles.
    files: Vec<PathBuf>,
    /// The name of the profile that is used if no profile belongs to the endpoint.
    profile: String,
    variable: Variable,
}

/// Returns the value of an environment variable.
type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Reads an environment variable that is set and not empty.
struct Variable(Box<Lookup>);

impl Default for Variable {
    fn default() -> Self {
        Variable(Box::new(|name| xdg::set(name)?.into_string().ok()))
    }
}

/// A profile: its name, and its keys with their values.
#[derive(Debug, Default, PartialEq, Eq)]
struct Profile {
    name: String,
    keys: Vec<(String, String)>,
}

impl Profile {
    fn get(&self, key: &str) -> Option<&str> {
        let found = self.keys.iter().rev().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// The credentials in a profile, if they are complete.
    fn credentials(&self) -> Option<Vec<(String, String)>> {
        let names = ["aws_access_key_id", "aws_secret_access_key"];
        let mut all = Vec::new();
        for name in names {
            all.push((name.to_owned(), self.get(name)?.to_owned()));
        }
        all.extend(
            self.get("aws_session_token").map(|it| ("aws_session_token".to_owned(), it.to_owned())),
        );
        Some(all)
    }
}

impl AwsSettings {
    /// Reads the environment variables and the files that they name.
    pub fn load(args: &BucketArgs) -> Self {
        let variable = Variable::default();
        let file = |variable_name: &str, below_home: &str| {
            let named = (variable.0)(variable_name).map(PathBuf::from);
            named.or_else(|| Some(PathBuf::from((variable.0)("HOME")?).join(below_home)))
        };
        let files = [
            file("AWS_CONFIG_FILE", ".aws/config"),
            file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
        ];
        let files: Vec<PathBuf> = files.into_iter().flatten().collect();
        let profiles = read_profiles(&files);
        let profile = (variable.0)("AWS_PROFILE").or_else(|| (variable.0)("AWS_DEFAULT_PROFILE"));
        let profile = profile.unwrap_or_else(|| "default".to_owned());
        AwsSettings { args: args.clone(), profiles, files, profile, variable }
    }

    /// The values that complete a place without an endpoint.
    pub fn defaults(&self) -> EndpointDefaults {
        let of_profile = |key| self.chosen().and_then(|it| it.get(key)).map(str::to_owned);
        let endpoint = (self.args.endpoint.clone())
            .or_else(|| self.variable("AWS_ENDPOINT_URL_S3"))
            .or_else(|| self.variable("AWS_ENDPOINT_URL"))
            .or_else(|| of_profile("endpoint_url"));
        let google = self.variable(GOOGLE_ENDPOINT);
        let azure = AZURE_ENDPOINTS.iter().find_map(|name| self.variable(name));
        EndpointDefaults { endpoint, region: self.region(self.chosen()), google, azure }
    }

    /// The credentials for an endpoint: from the profile made for it, else from variables, else
    /// from the chosen profile, else from the machine. Secrets that are sent in clear, such as
    /// tokens, go only to the provider's own hosts, because a place may come from a label that
    /// others can write.
    ///
    /// # Errors
    /// Fails with [`Kind::Io`] when there are no credentials for the endpoint.
    pub fn access(&self, place: &BucketPlace) -> Result<Access> {
        let access = match place.provider() {
            Provider::S3 => self.of_s3(place),
            Provider::Google if !place.is_providers_own() => Ok(Access::default()),
            Provider::Azure if !place.is_providers_own() => {
                self.of_names(place, &AZURE_KEYS, AZURE_KEYS[0])
            }
            Provider::Google => self.of_names(place, &GOOGLE, "GOOGLE_APPLICATION_CREDENTIALS"),
            Provider::Azure => self.of_names(place, &AZURE, AZURE_KEYS[0]),
        }?;
        let proxy = proxy_of(&place.endpoint(), &|name| self.variable(name));
        Ok(Access { authorities: self.authorities(place)?, proxy, ..access })
    }

    /// The file of additional certificate authorities, if one is named and the endpoint uses TLS.
    fn authorities(&self, place: &BucketPlace) -> Result<Vec<u8>> {
        if !place.is_secure() {
            return Ok(Vec::new());
        }
        let profile = self.of_endpoint(place).or_else(|| self.chosen());
        let named = self
            .variable(AUTHORITIES[0])
            .or_else(|| profile.and_then(|it| it.get(AUTHORITIES[1])).map(str::to_owned));
        let Some(path) = named.map(PathBuf::from) else { return Ok(Vec::new()) };
        let advice = "check AWS_CA_BUNDLE, or ca_bundle in the profile";
        let bytes = read(&path)
            .map_err(|error| Error::io("cannot read the CA bundle", &path, error).advice(advice))?;
        // An authority behind the limit would be one that is not trusted, without a word.
        if bytes.len() as u64 > FILE_MAX_BYTES {
            return Err(Error::new(Kind::Usage, "the CA bundle is too long")
                .at(&path)
                .expected(format_size(FILE_MAX_BYTES), "more")
                .advice(advice));
        }
        Ok(bytes)
    }

    /// The environment variables of these names that are set, as options of the client. At least
    /// one of these variables must be set: without them, the client would ask the machine for its
    /// role, at an address where another host may answer.
    fn of_names(&self, place: &BucketPlace, names: &[&str], first: &str) -> Result<Access> {
        let credentials = self.pairs(&[], names).filter(|pairs| !pairs.is_empty());
        let credentials = credentials.ok_or_else(|| {
            Error::new(Kind::Io, "there are no credentials for this endpoint")
                .at(place.path())
                .advice(match names.len() > AZURE_KEYS.len() {
                    true => format!("set {first}, or another variable that doc/buckets.md lists"),
                    false => {
                        format!(
                            "set {first}: for a custom endpoint, pinstripe uses no other variable"
                        )
                    }
                })
        })?;
        Ok(Access { credentials, ..Access::default() })
    }

    fn of_s3(&self, place: &BucketPlace) -> Result<Access> {
        let own = self.of_endpoint(place);
        let region = place.region().map(str::to_owned);
        let region = region.or_else(|| self.region(own.or_else(|| self.chosen())));
        let region = region.unwrap_or_else(|| "us-east-1".to_owned());
        let of_profile = |profile: Option<&Profile>| {
            let profile = profile?;
            Some((profile.credentials()?, Some(self.renewal(&profile.name))))
        };
        let credentials = of_profile(own)
            .or_else(|| Some((self.of_variables()?, None)))
            .or_else(|| of_profile(self.chosen()))
            .or_else(|| Some((self.of_machine(place)?, None)));
        match credentials {
            Some((credentials, renewal)) => {
                Ok(Access { region, credentials, renewal, ..Access::default() })
            }
            None => Err(Error::new(Kind::Io, "there are no credentials for this endpoint")
                .at(place.path())
                .advice(
                    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or choose a profile with \
                     AWS_PROFILE, or write a profile with this endpoint_url to ~/.aws/config",
                )),
        }
    }

    /// Reads the credentials of a profile again when its files have changed, as another program does
    /// that renews a session token.
    fn renewal(&self, name: &str) -> Renewal {
        let (files, name) = (self.files.clone(), name.to_owned());
        let seen = Mutex::new(stamps(&files));
        Box::new(move || {
            let now = stamps(&files);
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            if std::mem::replace(&mut *seen, now.clone()) == now {
                return None;
            }
            let profiles = read_profiles(&files);
            profiles.iter().find(|profile| profile.name == name)?.credentials()
        })
    }

    /// The profile that was made for an endpoint, with its keys.
    fn of_endpoint(&self, place: &BucketPlace) -> Option<&Profile> {
        self.profiles.iter().find(|profile| {
            let is_it =
                |url: &str| url.trim_end_matches('/').eq_ignore_ascii_case(&place.endpoint());
            profile.get("endpoint_url").is_some_and(is_it) && profile.credentials().is_some()
        })
    }

    fn variable(&self, name: &str) -> Option<String> {
        (self.variable.0)(name)
    }

    fn chosen(&self) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.name == self.profile)
    }

    fn region(&self, profile: Option<&Profile>) -> Option<String> {
        (self.args.region.clone())
            .or_else(|| self.variable("AWS_REGION"))
            .or_else(|| self.variable("AWS_DEFAULT_REGION"))
            .or_else(|| profile.and_then(|it| it.get("region")).map(str::to_owned))
    }

    /// Environment variables as pairs of options, if all needed ones are set.
    fn pairs(&self, needed: &[&str], more: &[&str]) -> Option<Vec<(String, String)>> {
        let pair = |name: &&str| Some((name.to_ascii_lowercase(), self.variable(name)?));
        let mut all = needed.iter().map(pair).collect::<Option<Vec<_>>>()?;
        all.extend(more.iter().filter_map(pair));
        Some(all)
    }

    fn of_variables(&self) -> Option<Vec<(String, String)>> {
        self.pairs(&["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"], &["AWS_SESSION_TOKEN"])
    }

    /// Credentials that AWS offers on its machines: web identity, container and instance; the
    /// instance is asked only for endpoints of AWS.
    fn of_machine(&self, place: &BucketPlace) -> Option<Vec<(String, String)>> {
        let web = ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"];
        let pod = ["AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"];
        let is_disabled = || {
            let disabled = self.variable("AWS_EC2_METADATA_DISABLED");
            disabled.is_some_and(|it| it.eq_ignore_ascii_case("true"))
        };
        self.pairs(&web, &["AWS_ROLE_SESSION_NAME"])
            .or_else(|| self.pairs(&["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"], &[]))
            .or_else(|| self.pairs(&pod, &[]))
            .or_else(|| (place.is_aws() && !is_disabled()).then(Vec::new))
    }
}

/// The profiles of these files, those that can be read.
fn read_profiles(files: &[PathBuf]) -> Vec<Profile> {
    let text = |path: &PathBuf| String::from_utf8(read(path).ok()?).ok();
    let mut profiles = Vec::new();
    files.iter().filter_map(text).for_each(|text| merge(&mut profiles, parse(&text)));
    profiles
}

/// What changes when a file is written: its inode, its length, and the time of its last change.
fn stamps(files: &[PathBuf]) -> Vec<Option<(u64, u64, i64, i64)>> {
    let stamp = |path: &PathBuf| {
        let there = std::fs::metadata(path).ok()?;
        Some((there.ino(), there.len(), there.mtime(), there.mtime_nsec()))
    };
    files.iter().map(stamp).collect()
}

/// Reads a file, up to one byte more than a settings file may have.
fn read(path: &std::path::Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The profiles of a file. Lines that begin with a space belong to a key of another tool, and are
/// ignored.
fn parse(text: &str) -> Vec<Profile> {
    let mut profiles: Vec<Profile> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with([' ', '\t', '#', ';'])) {
        let line = line.trim_end();
        if let Some(name) = line.strip_prefix('[').and_then(|it| it.split(']').next()) {
            let name = name.trim();
            let name = name.strip_prefix("profile ").unwrap_or(name).trim().to_owned();
            profiles.push(Profile { name, keys: Vec::new() });
        } else if let (Some(profile), Some((key, value))) =
            (profiles.last_mut(), line.split_once('='))
        {
            profile.keys.push((key.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    profiles
}

/// Adds profiles; profiles with the same name are merged.
fn merge(all: &mut Vec<Profile>, more: Vec<Profile>) {
    for profile in more {
        match all.iter_mut().find(|known| known.name == profile.name) {
            Some(known) => known.keys.extend(profile.keys),
            None => all.push(profile),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const FILE: &str = "\
# Two providers.
[default]
region = eu-west-1
s3 =
  addressing_style = path
[profile near]
endpoint_url = https://near.example.org/
aws_access_key_id=near-id
aws_secret_access_key = near=secret=
region = garage
no value
";

    fn settings(variables: &'static [(&'static str, &'static str)]) -> AwsSettings {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let mut profiles = parse(FILE);
        merge(
            &mut profiles,
            parse("[default]\naws_access_key_id = d\naws_secret_access_key = s\n"),
        );
        AwsSettings {
            args: BucketArgs::default(),
            profiles,
            files: Vec::new(),
            profile: lookup("AWS_PROFILE").unwrap_or_else(|| "default".to_owned()),
            variable: Variable(Box::new(lookup)),
        }
    }

    fn place(text: &str, settings: &AwsSettings) -> BucketPlace {
        BucketPlace::parse(Path::new(text), &settings.defaults()).unwrap()
    }

    fn used(settings: &AwsSettings, text: &str) -> (String, String) {
        let access = settings.access(&place(text, settings)).unwrap();
        (access.region, access.credentials[0].1.clone())
    }

    #[test]
    fn the_profile_of_an_endpoint_is_used_for_it_alone() {
        let settings =
            settings(&[("AWS_ACCESS_KEY_ID", "env-id"), ("AWS_SECRET_ACCESS_KEY", "env-secret")]);
        let near = used(&settings, "s3+https://near.example.org/bucket");
        assert_eq!(near, ("garage".to_owned(), "near-id".to_owned()));
        let other = used(&settings, "s3+https://far.example.org/bucket");
        assert_eq!(other, ("eu-west-1".to_owned(), "env-id".to_owned()));
        let aws = used(&settings, "s3+https://s3.us-west-2.amazonaws.com/bucket");
        assert_eq!(aws.0, "us-west-2");
    }

    #[test]
    fn without_variables_the_profile_counts_and_names_the_endpoint() {
        let plain = settings(&[]);
        assert_eq!(used(&plain, "s3+https://far.example.org/bucket").1, "d");
        let aws = place("s3://bucket", &plain).to_string();
        assert_eq!(aws, "s3+https://s3.eu-west-1.amazonaws.com/bucket");
        let near = settings(&[("AWS_PROFILE", "near")]);
        assert_eq!(place("s3://bucket", &near).to_string(), "s3+https://near.example.org/bucket");
    }

    #[test]
    fn where_nothing_is_said_no_machine_is_asked_but_one_of_aws() {
        let settings = settings(&[("AWS_PROFILE", "none")]);
        let error = settings.access(&place("s3+https://far.example.org/bucket", &settings));
        assert_eq!(error.err().map(|error| error.kind()), Some(Kind::Io));
        let aws = place("s3+https://s3.us-east-1.amazonaws.com/bucket", &settings);
        assert!(settings.access(&aws).unwrap().credentials.is_empty());
    }
    #[test]
    fn tokens_go_to_the_provider_alone() {
        let variables = &[
            ("GOOGLE_SERVICE_ACCOUNT_KEY", "{}"),
            ("AZURE_STORAGE_ACCOUNT_KEY", "a2V5"),
            ("AZURE_STORAGE_SAS_TOKEN", "sig=x"),
            ("STORAGE_EMULATOR_HOST", "127.0.0.1:4443"),
            ("AZURITE_BLOB_STORAGE_URL", "http://127.0.0.1:10000"),
        ];
        let settings = settings(variables);
        let names = |text: &str| {
            let access = settings.access(&place(text, &settings)).unwrap();
            access.credentials.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        let key = "azure_storage_account_key";
        assert_eq!(place("gs://bucket", &settings).to_string(), "gs+http://127.0.0.1:4443/bucket");
        assert!(names("gs://bucket").is_empty());
        assert_eq!(names("az://account/container"), [key]);
        let own = "az+https://account.blob.core.windows.net/account/container";
        assert_eq!(names(own), [key, "azure_storage_sas_token"]);
        let own = "gs+https://storage.googleapis.com/bucket";
        assert_eq!(names(own), ["google_service_account_key"]);
    }
}
