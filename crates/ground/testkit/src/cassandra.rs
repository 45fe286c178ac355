//! Nodes of Cassandra, of the real program: `TAHTI_CASSANDRA` names its jars, `TAHTI_JAVA` Java 17; `cargo xtask test
//! cassandra` has them fetched and sets both.

use std::io::{Read, Seek};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a node may take to start, on a machine that does other things too.
const START: Duration = Duration::from_secs(240);

/// A node on 127.0.0.N. It is killed at the end.
pub struct Node {
    number: u8,
    is_first: bool,
    folder: PathBuf,
    child: Option<Child>,
    size: &'static NodeSize,
}

/// What a node may use of the machine.
struct NodeSize {
    /// How its Java runs.
    java: &'static [&'static str],
    /// What it gathers before it writes it sorted, in MiB.
    memtables: u32,
}

/// Starts soon, and leaves the machine to others.
const SMALL: NodeSize =
    NodeSize { java: &["-Xmx384m", "-XX:+UseSerialGC", "-Xss256k", "-XX:TieredStopAtLevel=1"], memtables: 64 };
/// Compiles what runs often as well as it can, as an installed node does.
const MEASURED: NodeSize = NodeSize { java: &["-Xms2g", "-Xmx2g", "-XX:+UseParallelGC", "-Xss256k"], memtables: 512 };

impl Node {
    /// Starts a node with its files in a folder of `place` and waits until clients may come. `first` is the node that all of
    /// a cluster ask; itself for the first one.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn start(place: &Path, number: u8, first: u8) -> Self {
        Self::start_as(place, number, first, &SMALL)
    }

    /// The same, as it is installed where its speed counts: with 2 GiB of memory and all of Java's compilers.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn measured(place: &Path) -> Self {
        Self::start_as(place, 1, 1, &MEASURED)
    }

    fn start_as(place: &Path, number: u8, first: u8, size: &'static NodeSize) -> Self {
        let folder = place.join(format!("node-{number}"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("cassandra.yaml"), settings(&folder, (number, first), size.memtables)).unwrap();
        std::fs::write(folder.join("logback.xml"), QUIET).unwrap();
        let mut node = Self { number, is_first: number == first, folder, child: None, size };
        node.again();
        node
    }

    /// Where clients find it, at port 9042.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.{}", self.number)
    }

    /// Ends it without a word, as a power cut of the machine or the kernel's want of memory does.
    ///
    /// # Panics
    /// Where that fails.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts it again with what is on its disk.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn again(&mut self) {
        let jars = std::env::var("TAHTI_CASSANDRA").expect("cargo xtask test cassandra says where Cassandra is");
        let java = std::env::var("TAHTI_JAVA").expect("cargo xtask test cassandra says where Java 17 is");
        let mut said =
            std::fs::File::options().create(true).read(true).append(true).open(self.folder.join("said.txt")).unwrap();
        let mut command = Command::new(java);
        command.args(self.size.java);
        command.args(OPENED.iter().flat_map(|words| words.split_whitespace()));
        let agent = std::fs::read_dir(&jars).unwrap().flatten().map(|entry| entry.path());
        let agent =
            agent.into_iter().find(|jar| jar.to_string_lossy().contains("/jamm-")).expect("jamm among the jars");
        command.arg(format!("-javaagent:{}", agent.display()));
        command.arg(format!("-Dcassandra.storagedir={}", self.folder.display()));
        // What it unpacks there stays when it is killed.
        command.arg(format!("-Djava.io.tmpdir={}", self.folder.display()));
        command.arg(format!("-Dcassandra.config=file://{}/cassandra.yaml", self.folder.display()));
        let ring_delay = if self.is_first { 100 } else { 2_000 };
        command.arg(format!("-Dcassandra.ring_delay_ms={ring_delay}"));
        command.arg(format!("-Dlogback.configurationFile={}/logback.xml", self.folder.display()));
        command.args(["-Dcassandra.skip_wait_for_gossip_to_settle=0", "-Dcassandra-foreground=yes"]);
        command.args(["-cp", &format!("{jars}/*"), "org.apache.cassandra.service.CassandraDaemon"]);
        command.stdin(Stdio::null()).stdout(said.try_clone().unwrap()).stderr(said.try_clone().unwrap());
        let mut child = command.spawn().unwrap();
        let until = Instant::now() + START;
        while TcpStream::connect((self.address().as_str(), 9042)).is_err() {
            let ended = child.try_wait().unwrap();
            if ended.is_some() || Instant::now() > until {
                let _ = child.kill();
                let mut text = String::new();
                said.rewind().unwrap();
                said.read_to_string(&mut text).unwrap();
                panic!("node {} did not start ({ended:?}):\n{text}", self.number);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        self.child = Some(child);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What goes wrong is said, nothing else.
const QUIET: &str = r#"<configuration><appender name="OUT" class="ch.qos.logback.core.ConsoleAppender"><encoder>
<pattern>%d %level %logger{0} %msg%n</pattern></encoder></appender><root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>"#;

/// What Cassandra reaches into.
const OPENED: &[&str] = &[
    "-Djdk.attach.allowAttachSelf=true",
    "--add-exports java.base/jdk.internal.misc=ALL-UNNAMED --add-exports java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports java.base/sun.nio.ch=ALL-UNNAMED --add-exports java.base/java.lang.ref=ALL-UNNAMED",
    "--add-exports java.management.rmi/com.sun.jmx.remote.internal.rmi=ALL-UNNAMED",
    "--add-exports java.rmi/sun.rmi.registry=ALL-UNNAMED --add-exports java.rmi/sun.rmi.server=ALL-UNNAMED",
    "--add-exports java.rmi/sun.rmi.transport.tcp=ALL-UNNAMED --add-exports java.sql/java.sql=ALL-UNNAMED",
    "--add-exports jdk.unsupported/sun.misc=ALL-UNNAMED --add-opens java.base/java.lang=ALL-UNNAMED",
    "--add-opens java.base/java.lang.module=ALL-UNNAMED --add-opens java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens java.base/java.io=ALL-UNNAMED --add-opens java.base/java.nio=ALL-UNNAMED",
    "--add-opens java.base/java.net=ALL-UNNAMED --add-opens java.base/java.math=ALL-UNNAMED",
    "--add-opens java.base/java.util=ALL-UNNAMED --add-opens java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-opens java.base/java.util.concurrent.atomic=ALL-UNNAMED --add-opens java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens java.base/jdk.internal.loader=ALL-UNNAMED --add-opens java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens java.base/jdk.internal.reflect=ALL-UNNAMED --add-opens java.base/jdk.internal.math=ALL-UNNAMED",
    "--add-opens java.base/jdk.internal.module=ALL-UNNAMED --add-opens java.base/jdk.internal.util.jar=ALL-UNNAMED",
    "--add-opens jdk.management/com.sun.management.internal=ALL-UNNAMED",
];

fn settings(folder: &Path, (number, first): (u8, u8), memtables: u32) -> String {
    let folder = folder.display();
    format!(
        "cluster_name: tahti\nnum_tokens: 4\nauto_bootstrap: false\n\
         partitioner: org.apache.cassandra.dht.Murmur3Partitioner\nendpoint_snitch: SimpleSnitch\n\
         commitlog_sync: batch\ncommitlog_segment_size: 32MiB\n\
         commitlog_directory: {folder}/commitlog\ndata_file_directories: [{folder}/data]\n\
         hints_directory: {folder}/hints\nsaved_caches_directory: {folder}/saved_caches\n\
         cdc_raw_directory: {folder}/cdc_raw\nlisten_address: 127.0.0.{number}\nrpc_address: 127.0.0.{number}\n\
         start_native_transport: true\nnative_transport_port: 9042\nstorage_port: 7000\n\
         seed_provider:\n  - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n    parameters:\n      - seeds: 127.0.0.{first}\n\
         memtable_heap_space: {memtables}MiB\nmemtable_offheap_space: {memtables}MiB\nkey_cache_size: 0MiB\ncounter_cache_size: 0MiB\n\
         row_cache_size: 0MiB\nfile_cache_size: 32MiB\n"
    )
}
