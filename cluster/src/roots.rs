//! Whose certificates are trusted where no authority is named: those of the system, or, where it has none (an image from
//! scratch), the public roots that are compiled in. No client required.

use kube::Config;

/// Sees that a client without an authority of its own has somebody to trust.
pub fn trust(config: &mut Config) {
    if config.root_cert.is_none() && config.root_cert_file.is_none() && !system_has_any() {
        config.root_cert = Some(compiled_in());
    }
}

/// These authorities (DER), and the public roots that are compiled in.
pub fn beside_public(mut authorities: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    authorities.extend(compiled_in());
    authorities
}

/// `SSL_CERT_FILE` and `SSL_CERT_DIR` count, as everywhere.
fn system_has_any() -> bool {
    !rustls_native_certs::load_native_certs().certs.is_empty()
}

/// The public roots, as DER.
fn compiled_in() -> Vec<Vec<u8>> {
    webpki_root_certs::TLS_SERVER_ROOT_CERTS
        .iter()
        .map(|root| root.to_vec())
        .collect()
}

#[cfg(test)]
mod tests {
    use kube::Client;

    use super::*;

    fn config() -> Config {
        Config::new("https://127.0.0.1:1".parse().unwrap())
    }

    #[tokio::test]
    async fn the_roots_that_are_compiled_in_make_a_client() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = config();
        config.root_cert = Some(beside_public(Vec::new()));
        assert!(config.root_cert.as_ref().unwrap().len() > 100);
        Client::try_from(config).unwrap();
    }

    #[test]
    fn an_authority_that_is_named_stays_alone() {
        let mut config = config();
        config.root_cert = Some(vec![vec![1]]);
        trust(&mut config);
        assert_eq!(config.root_cert, Some(vec![vec![1]]));
    }
}
