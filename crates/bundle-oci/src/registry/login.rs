//! A name at a registry, and what proves it.
//! Not here: where it comes from (auth), and the tokens that it buys (token).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A name and what proves it.
#[derive(Clone, PartialEq, Eq)]
pub enum Login {
    /// Name and password.
    Password {
        /// Name.
        user: String,
        /// Password.
        password: String,
    },
    /// A token that is exchanged for others at the token service.
    IdentityToken(String),
    /// A token that the registry itself takes.
    Bearer(String),
}

impl fmt::Debug for Login {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({})", self.who())
    }
}

impl Login {
    pub(super) fn who(&self) -> String {
        match self {
            Self::Password { user, .. } => format!("as {user}"),
            Self::IdentityToken(_) => "with an identity token".to_owned(),
            Self::Bearer(_) => "with a token".to_owned(),
        }
    }

    /// The header that shows name and password.
    pub(super) fn basic(&self) -> Option<String> {
        match self {
            Self::Password { user, password } => Some(format!(
                "Basic {}",
                STANDARD.encode(format!("{user}:{password}"))
            )),
            Self::IdentityToken(_) | Self::Bearer(_) => None,
        }
    }
}
