//! The server on a real socket, with a client that speaks HTTP/1.1 by hand, so that each byte and each close is seen.

use std::{io::Write as _, time::Duration};

use axum::{body::Bytes, routing::get, routing::post};
use certs::{
    issuer::Authority,
    resolver::Served,
    settings::{Lives, Names},
};
use jiff::Timestamp;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{PrivateKeyDer, ServerName};
use shared::clock::Clock;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{Notify, oneshot},
    task::JoinHandle,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;

const NAME: &str = "offhours-webhook.offhours.svc";
/// Nothing here takes this long unless it hangs.
const SOON: Duration = Duration::from_secs(20);

struct WallClock;

impl Clock for WallClock {
    #[expect(clippy::disallowed_methods, reason = "real handshakes are judged by the real time")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

fn authority() -> Authority {
    Authority::generate(WallClock.now(), &Lives::default()).unwrap()
}

fn leaf_of(authority: &Authority) -> Served {
    let names = Names::of_service("offhours-webhook", "offhours");
    let leaf = authority
        .issue(&names, WallClock.now(), &Lives::default(), None)
        .unwrap();
    Served::new(vec![leaf.certificate], leaf.key, vec![leaf.signer]).unwrap()
}

struct Running {
    address: SocketAddr,
    resolver: Arc<Resolver>,
    authority: Authority,
    shutdown: Option<oneshot::Sender<()>>,
    server: JoinHandle<Result<(), ServerError>>,
}

impl Running {
    fn start(router: Router, options: Options, client_authorities: Option<&Path>) -> Self {
        let authority = authority();
        let resolver = Arc::new(Resolver::new(Arc::new(WallClock)));
        resolver.serve(leaf_of(&authority));
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let tls = Arc::new(tls_config(Arc::clone(&resolver), client_authorities).unwrap());
        let (shutdown, signal) = oneshot::channel::<()>();
        let signal = async {
            let _ = signal.await;
        };
        let server = tokio::spawn(serve(listener, tls, router, signal, options));
        Self {
            address,
            resolver,
            authority,
            shutdown: Some(shutdown),
            server,
        }
    }

    fn client(&self, alpn: &[&[u8]]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.certificate().der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        config
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        self.connect_with(self.client(&[b"http/1.1"])).await.unwrap()
    }

    async fn connect_with(&self, config: ClientConfig) -> io::Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(self.address).await?;
        TlsConnector::from(Arc::new(config))
            .connect(ServerName::try_from(NAME).unwrap(), tcp)
            .await
    }

    fn stop(&mut self) {
        self.shutdown.take().unwrap().send(()).unwrap();
    }

    async fn ended(self) -> Result<(), ServerError> {
        timeout(SOON, self.server).await.expect("the server ends").unwrap()
    }
}

fn quick() -> Options {
    Options {
        settle: Duration::ZERO,
        deadline: SOON,
        ..Options::default()
    }
}

async fn ask(stream: &mut TlsStream<TcpStream>, path: &str) {
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes())
        .await
        .unwrap();
}

/// One answer: everything up to the end of a body of known length.
async fn answer(stream: &mut TlsStream<TcpStream>) -> String {
    let mut text = Vec::new();
    loop {
        let mut part = [0_u8; 4096];
        let length = timeout(SOON, stream.read(&mut part))
            .await
            .expect("an answer in time")
            .unwrap();
        text.extend_from_slice(&part[..length]);
        let seen = String::from_utf8_lossy(&text).into_owned();
        if length == 0 {
            return seen;
        }
        if let Some((head, body)) = seen.split_once("\r\n\r\n") {
            let wanted: usize = head
                .lines()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned))
                .map_or(0, |length| length.parse().unwrap());
            if body.len() >= wanted {
                return seen;
            }
        }
    }
}

/// Waits until the server has closed the connection.
async fn closed(stream: &mut TlsStream<TcpStream>) {
    let mut rest = Vec::new();
    // A close without TLS's own goodbye counts as well: what matters is that it is closed.
    let _ = timeout(SOON, stream.read_to_end(&mut rest))
        .await
        .expect("the connection is closed");
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

/// A router whose `/slow` answers when `release` is told to, and which says when a request has come in.
fn slow() -> (Router, Arc<Notify>, Arc<Notify>) {
    let (entered, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (Arc::clone(&entered), Arc::clone(&release));
    let handler = get(move || async move {
        tell.notify_one();
        wait.notified().await;
        "late"
    });
    (hello().route("/slow", handler), entered, release)
}

#[tokio::test]
async fn case_6_17_idle_connections_are_closed_and_a_running_request_is_answered() {
    let (router, entered, release) = slow();
    let mut running = Running::start(router, quick(), None);
    let mut idle = Vec::new();
    for _ in 0..50 {
        let mut stream = running.connect().await;
        ask(&mut stream, "/").await;
        assert!(answer(&mut stream).await.ends_with("hello"));
        idle.push(stream);
    }
    // And one that has never asked anything.
    idle.push(running.connect().await);
    let mut busy = running.connect().await;
    ask(&mut busy, "/slow").await;
    timeout(SOON, entered.notified()).await.unwrap();

    running.stop();
    for stream in &mut idle {
        closed(stream).await;
    }
    assert!(!running.server.is_finished(), "a request still runs");
    release.notify_one();
    let late = answer(&mut busy).await;
    assert!(late.starts_with("HTTP/1.1 200") && late.ends_with("late"), "{late}");
    running.ended().await.unwrap();
}

#[tokio::test]
async fn case_6_17_a_request_that_never_ends_is_cut_at_the_deadline() {
    let (router, entered, _release) = slow();
    let options = Options {
        deadline: Duration::from_millis(100),
        ..quick()
    };
    let mut running = Running::start(router, options, None);
    let mut busy = running.connect().await;
    ask(&mut busy, "/slow").await;
    timeout(SOON, entered.notified()).await.unwrap();
    running.stop();
    running.ended().await.unwrap();
    closed(&mut busy).await;
}

#[tokio::test]
async fn while_endpoints_move_everything_is_served_and_connections_are_asked_to_close() {
    let options = Options {
        settle: Duration::from_secs(3_600),
        ..quick()
    };
    let mut running = Running::start(hello(), options, None);
    let mut old = running.connect().await;
    ask(&mut old, "/").await;
    let before = answer(&mut old).await.to_lowercase();
    assert!(!before.contains("connection: close"), "{before}");

    running.stop();
    // Until the server has taken notice, a connection stays open; each new one is served in any case.
    loop {
        let mut fresh = running.connect().await;
        ask(&mut fresh, "/").await;
        let text = answer(&mut fresh).await.to_lowercase();
        assert!(text.starts_with("http/1.1 200"), "{text}");
        if text.contains("connection: close") {
            closed(&mut fresh).await;
            break;
        }
    }
    ask(&mut old, "/").await;
    let after = answer(&mut old).await.to_lowercase();
    assert!(
        after.starts_with("http/1.1 200") && after.contains("connection: close"),
        "{after}"
    );
    closed(&mut old).await;
    running.server.abort();
}

/// Kinds of HTTP/2 frames, and their flags.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOODBYE: u8 = 7;
const ACKNOWLEDGED: u8 = 1;
const END_OF_STREAM: u8 = 1;
const END_OF_HEADERS: u8 = 4;

async fn send_frame(stream: &mut TlsStream<TcpStream>, kind: u8, flags: u8, id: u32, payload: &[u8]) {
    let mut bytes = vec![0, 0, u8::try_from(payload.len()).unwrap(), kind, flags];
    bytes.extend_from_slice(&id.to_be_bytes());
    bytes.extend_from_slice(payload);
    // The server may have closed it by then; the next read tells.
    let _ = stream.write_all(&bytes).await;
}

/// The next frame: kind, flags, stream. `None`: the connection is closed. What has to be acknowledged is.
async fn next_frame(stream: &mut TlsStream<TcpStream>) -> Option<(u8, u8, u32)> {
    let mut head = [0_u8; 9];
    timeout(SOON, stream.read_exact(&mut head))
        .await
        .expect("a frame or the end")
        .ok()?;
    let [a, b, c, kind, flags, id @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    stream.read_exact(&mut payload).await.ok()?;
    if matches!(kind, SETTINGS | PING) && flags & ACKNOWLEDGED == 0 {
        let echo = if kind == PING { &*payload } else { &[] };
        send_frame(stream, kind, ACKNOWLEDGED, 0, echo).await;
    }
    Some((kind, flags, u32::from_be_bytes(id)))
}

/// Asks for `/` on this stream; whether the server said goodbye before the answer had ended.
async fn asks_by_2(stream: &mut TlsStream<TcpStream>, id: u32) -> bool {
    // GET, https, /, and an authority, by the static table of HPACK.
    let block = [0x82, 0x87, 0x84, 0x41, 1, b'x'];
    send_frame(stream, HEADERS, END_OF_STREAM | END_OF_HEADERS, id, &block).await;
    let mut goodbye = false;
    loop {
        let (kind, flags, of) = next_frame(stream).await.expect("an answer before the end");
        goodbye |= kind == GOODBYE;
        if of == id && matches!(kind, DATA | HEADERS) && flags & END_OF_STREAM != 0 {
            return goodbye;
        }
    }
}

#[tokio::test]
async fn on_http_2_every_request_is_answered_then_goodbye_is_said_and_the_connection_closed() {
    let options = Options {
        settle: Duration::from_secs(3_600),
        ..quick()
    };
    let mut running = Running::start(hello(), options, None);
    let mut stream = running.connect_with(running.client(&[b"h2"])).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    send_frame(&mut stream, SETTINGS, 0, 0, &[]).await;
    assert!(!asks_by_2(&mut stream, 1).await, "nobody leaves yet");

    running.stop();
    let mut id = 3;
    // Until the server has taken notice, a connection goes on.
    while !asks_by_2(&mut stream, id).await {
        id += 2;
        assert!(id < 100_001, "no goodbye");
    }
    while next_frame(&mut stream).await.is_some() {}
    // Clients come back on a new connection, which is served.
    let mut fresh = running.connect().await;
    ask(&mut fresh, "/").await;
    assert!(answer(&mut fresh).await.ends_with("hello"));
    running.server.abort();
}

#[tokio::test]
async fn case_5_20_a_swapped_certificate_is_seen_by_the_next_handshake_and_open_connections_go_on() {
    let running = Running::start(hello(), quick(), None);
    let peer = |stream: &TlsStream<TcpStream>| stream.get_ref().1.peer_certificates().unwrap()[0].clone();
    let mut open = running.connect().await;
    let first = peer(&open);
    let new = leaf_of(&running.authority);
    let expected = new.leaf().der().clone();
    running.resolver.serve(new);

    ask(&mut open, "/").await;
    assert!(
        answer(&mut open).await.ends_with("hello"),
        "the open connection goes on"
    );
    let fresh = running.connect().await;
    assert_ne!(peer(&fresh), first);
    assert_eq!(peer(&fresh), expected);
}

#[tokio::test]
async fn both_protocols_are_offered() {
    let running = Running::start(hello(), quick(), None);
    for (offered, chosen) in [
        (vec![b"h2".as_slice(), b"http/1.1"], b"h2".as_slice()),
        (vec![b"http/1.1"], b"http/1.1"),
    ] {
        let stream = running.connect_with(running.client(&offered)).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(chosen));
    }
}

#[tokio::test]
async fn bodies_up_to_seven_mebibytes_are_read_and_larger_ones_refused() {
    let router = Router::new().route("/", post(|body: Bytes| async move { body.len().to_string() }));
    let running = Running::start(router, quick(), None);
    for (length, expected) in [(BODY_LIMIT, "HTTP/1.1 200"), (BODY_LIMIT + 1, "HTTP/1.1 413")] {
        let mut stream = running.connect().await;
        let head = format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        // A refusal may come, and the connection go, before all is sent.
        let _ = stream.write_all(&vec![b'x'; length]).await;
        let text = answer(&mut stream).await;
        assert!(text.starts_with(expected), "{length}: {text}");
    }
}

/// An authority of clients, and a certificate and key of one of its clients.
fn client_pair() -> (String, CertificateDer<'static>, PrivateKeyDer<'static>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::default();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = rcgen::CertifiedIssuer::self_signed(parameters, key).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(vec!["kube-apiserver".to_owned()]).unwrap();
    parameters.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let client = parameters.signed_by(&key, &authority).unwrap();
    (
        authority.pem(),
        client.der().clone(),
        PrivateKeyDer::Pkcs8(key.serialize_der().into()),
    )
}

#[tokio::test]
async fn only_clients_of_the_given_authority_are_served() {
    let (authority_pem, certificate, key) = client_pair();
    let (_, strange_certificate, strange_key) = client_pair();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(authority_pem.as_bytes()).unwrap();
    let running = Running::start(hello(), quick(), Some(file.path()));
    let showing = |certificate, key| {
        let mut roots = RootCertStore::empty();
        roots.add(running.authority.certificate().der().clone()).unwrap();
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate], key)
            .unwrap()
    };
    // Under TLS 1.3 the refusal comes with the first read.
    let served = async |config: ClientConfig| -> io::Result<String> {
        let mut stream = running.connect_with(config).await?;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await?;
        let mut part = [0_u8; 512];
        let length = stream.read(&mut part).await?;
        Ok(String::from_utf8_lossy(&part[..length]).into_owned())
    };
    assert!(served(running.client(&[])).await.is_err(), "no certificate");
    assert!(
        served(showing(strange_certificate, strange_key)).await.is_err(),
        "a stranger's certificate"
    );
    let text = served(showing(certificate, key)).await.unwrap();
    assert!(text.ends_with("hello"), "{text}");
}

#[test]
fn client_authorities_that_cannot_be_read_are_named() {
    let resolver = || Arc::new(Resolver::new(Arc::new(WallClock)));
    let missing = tls_config(resolver(), Some(Path::new("/nowhere/clients.pem")))
        .unwrap_err()
        .to_string();
    assert!(missing.contains("/nowhere/clients.pem"), "{missing}");
    let empty = tempfile::NamedTempFile::new().unwrap();
    let nothing = tls_config(resolver(), Some(empty.path())).unwrap_err().to_string();
    assert!(nothing.contains("no certificate"), "{nothing}");
}

#[test]
fn a_port_in_use_is_named_with_a_remedy() {
    let first = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = first.local_addr().unwrap();
    let error = listen(address).unwrap_err();
    assert!(matches!(error, ServerError::UseAddress { .. }));
    let text = error.to_string();
    assert!(
        text.contains(&address.to_string()) && text.contains("choose another port"),
        "{text}"
    );
}

#[tokio::test]
async fn without_a_certificate_handshakes_fail_and_are_counted() {
    let authority = authority();
    let resolver = Arc::new(Resolver::new(Arc::new(WallClock)));
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let tls = Arc::new(tls_config(Arc::clone(&resolver), None).unwrap());
    let server = tokio::spawn(serve(listener, tls, hello(), std::future::pending(), quick()));
    let running = Running {
        address,
        resolver,
        authority,
        shutdown: None,
        server,
    };
    assert!(running.connect_with(running.client(&[])).await.is_err());
    assert_eq!(running.resolver.refused_handshakes(), 1);
    running.resolver.serve(leaf_of(&running.authority));
    running.connect().await;
}
