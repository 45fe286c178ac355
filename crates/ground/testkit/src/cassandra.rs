//! Cassandra nodes, run from the original program. `TAHTI_CASSANDRA` is the folder of its jars and `TAHTI_JAVA` is Java 17. `cargo xtask test
//! cassandra` fetches both and sets the variables.

use std::io::{Read, Seek};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Timeout for the start of a node on a busy machine.
const START: Duration = Duration::from_secs(240);

/// A node on 127.0.0.N. Killed on drop.
pub struct Node {
    number: u8,
    is_first: bool,
    folder: PathBuf,
    child: Option<Child>,
    size: &'static NodeSize,
}

/// Resources of a node.
struct NodeSize {
    /// Options of the Java virtual machine.
    java: &'static [&'static str],
    /// Memory for memtables, in MiB.
    memtables: u32,
}

/// Starts quickly with little memory and CPU time.
const SMALL: NodeSize =
    NodeSize { java: &["-Xmx384m", "-XX:+UseSerialGC", "-Xss256k", "-XX:TieredStopAtLevel=1"], memtables: 64 };
/// Uses all optimisations of the virtual machine, as an installed node does.
const MEASURED: NodeSize = NodeSize { java: &["-Xms2g", "-Xmx2g", "-XX:+UseParallelGC", "-Xss256k"], memtables: 512 };

impl Node {
    /// Starts a node with its files in a folder below `place`, and waits until it accepts clients. `first` is the seed node of the cluster; for
    /// the first node its own number.
    ///
    /// # Panics
    /// The node does not start.
    #[must_use]
    pub fn start(place: &Path, number: u8, first: u8) -> Self {
        Self::start_as(place, number, first, &SMALL)
    }

    /// Starts a node configured as for production, with 2 GiB of memory and all compilers of the virtual machine.
    ///
    /// # Panics
    /// The node does not start.
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

    /// Address for clients. The port is 9042.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.{}", self.number)
    }

    /// Kills the node, as a power failure or the kernel's out-of-memory killer does.
    ///
    /// # Panics
    /// The node cannot be killed.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts the node again with the data on its disk.
    ///
    /// # Panics
    /// The node does not start.
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
        // Files that the node unpacks there remain after it is killed.
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

/// Logs warnings and errors only.
const QUIET: &str = r#"<configuration><appender name="OUT" class="ch.qos.logback.core.ConsoleAppender"><encoder>
<pattern>%d %level %logger{0} %msg%n</pattern></encoder></appender><root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>"#;

/// Internals of the Java runtime that Cassandra accesses.
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
