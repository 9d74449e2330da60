//! Credentials that another program may renew during a run, as session tokens in a profile.
//!
//! Each request is signed with the credentials that are in force then.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;

use crate::locks::{BucketLock, RankedMutex};

/// Returns the options with the credentials if they have changed since the last call. Called for each
/// request.
pub type Renewal = Box<dyn Fn() -> Option<Vec<(String, String)>> + Send + Sync>;

/// The credentials in force.
pub(crate) struct RenewedCredentials {
    renewal: Renewal,
    current: RankedMutex<Arc<AwsCredential>>,
}

impl RenewedCredentials {
    /// Starts with these credentials.
    pub fn new(renewal: Renewal, first: &[(String, String)]) -> Self {
        let current = RankedMutex::new(BucketLock::Credentials, Arc::new(credential(first)));
        RenewedCredentials { renewal, current }
    }
}

impl fmt::Debug for RenewedCredentials {
    /// Prints no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RenewedCredentials").finish_non_exhaustive()
    }
}

#[async_trait]
impl CredentialProvider for RenewedCredentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let renewed = (self.renewal)();
        let mut current = self.current.lock();
        if let Some(renewed) = renewed {
            *current = Arc::new(credential(&renewed));
        }
        Ok(Arc::clone(&current))
    }
}

fn credential(options: &[(String, String)]) -> AwsCredential {
    let find = |name: &str| {
        let found = options.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone())
    };
    AwsCredential {
        key_id: find("aws_access_key_id").unwrap_or_default(),
        secret_key: find("aws_secret_access_key").unwrap_or_default(),
        token: find("aws_session_token"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewed_credentials_are_used_by_the_next_request() {
        let pairs = |key: &str| {
            let value = [("aws_access_key_id", key), ("aws_session_token", "t")];
            value.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
        };
        let newer = Arc::new(std::sync::Mutex::new(None));
        let seen = Arc::clone(&newer);
        let renewal = move || seen.lock().unwrap().take();
        let credentials = RenewedCredentials::new(Box::new(renewal), &pairs("A"));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let key = || runtime.block_on(credentials.get_credential()).unwrap().key_id.clone();
        assert_eq!(key(), "A");
        *newer.lock().unwrap() = Some(pairs("B"));
        assert_eq!([key(), key()], ["B", "B"]);
    }
}
