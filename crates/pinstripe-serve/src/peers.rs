//! Which tokens a connection with a client certificate may use: those of the host that the
//! certificate names.

use axum::http::HeaderMap;
use pinstripe_base::error::Result;

use crate::app::App;
use crate::tls::PeerNames;

impl App {
    /// Refuses a request with the token or the login of a host that the certificate does not name.
    /// A request without a valid token is refused later.
    pub(crate) fn require_peer(&self, names: &PeerNames, headers: &HeaderMap) -> Result<()> {
        if let Ok((token, _)) = self.gate.token(headers) {
            names.require(&token.host)?;
        }
        let Some(id) = self.logins.find(headers) else { return Ok(()) };
        let tokens = self.gate.tokens.all()?;
        tokens.iter().filter(|it| it.id == id).try_for_each(|it| names.require(&it.host))
    }
}
