//! A guest's definition for other tools: a libvirt domain, or an `xl` configuration.
//!
//! Settings that such a file cannot express, or only for the whole machine, are returned as notes and appear as
//! comments in the file. Nothing is omitted silently. Sources: libvirt's "Domain XML format", `xl.cfg(5)`. Pure.

use crate::model::{Accel, BOARD, Guest, Network, Profile, form};
use base::{CpuSet, Policy, Size};
use quick_xml::Writer;
use quick_xml::events::BytesText;
use std::io;
use std::path::{Path, PathBuf};

/// A guest with the related settings of the plant file.
#[derive(Clone, Debug)]
pub struct Definition<'a> {
    /// The guest; its files as named in the plant file.
    pub guest: &'a Guest,
    /// Base of relative paths.
    pub folder: &'a Path,
    /// CPUs of QEMU's own threads, if the plant file sets them.
    pub cpus: Option<&'a CpuSet>,
    /// Memory limit of guest and QEMU together.
    pub memory_max: Option<Size>,
}

/// A definition, and the settings that it cannot express.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defined {
    /// Content of the file.
    pub text: String,
    /// Settings that the file cannot express, one sentence each.
    pub notes: Vec<String>,
}

impl Definition<'_> {
    fn path(&self, path: &Path) -> String {
        self.folder.join(path).display().to_string()
    }

    /// Settings that neither format can express.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let guest = self.guest;
        if guest.network == Network::User {
            let rules: Vec<String> = guest.allow.iter().map(ToString::to_string).collect();
            let reached = if rules.is_empty() { "nothing".to_owned() } else { rules.join(", ") };
            notes.push(format!(
                "no network card: only tahti provides a network to {reached} and nowhere else; add a card in a filtered network"
            ));
        }
        if let Some(processor) = &guest.processor {
            notes.push(format!("processor = {processor:?} is QEMU's name; the file uses the host's processor"));
        }
        if guest.network_rate.is_some() && guest.network == Network::User {
            notes.push("network_rate has no effect without that network".to_owned());
        }
        notes
    }

    /// A domain for `virsh define`.
    ///
    /// # Errors
    /// None in practice: the text is written to memory.
    pub fn libvirt(&self) -> io::Result<Defined> {
        let guest = self.guest;
        let windows = guest.profile == Profile::Windows;
        let mut notes = self.notes();
        let kind = match guest.accel {
            Accel::Emulated => "qemu",
            Accel::Kvm => "kvm",
            Accel::Auto => {
                notes.push("accel = \"auto\" becomes \"kvm\": libvirt does not choose".to_owned());
                "kvm"
            }
        };
        let class = guest.vcpu_class.as_ref().and_then(scheduler);
        if let Some(class) = guest.vcpu_class.as_ref().filter(|_| class.is_none()) {
            notes.push(format!("vcpu_class {class}: libvirt has no equivalent"));
        }
        let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
        let text = |writer: &mut Writer<Vec<u8>>, name: &str, value: &str| {
            writer.create_element(name).write_text_content(BytesText::new(value)).map(drop)
        };
        let mib = |writer: &mut Writer<Vec<u8>>, name: &str, size: Size| {
            let count = (size.0 >> 20).to_string();
            writer
                .create_element(name)
                .with_attribute(("unit", "MiB"))
                .write_text_content(BytesText::new(&count))
                .map(drop)
        };
        writer.create_element("domain").with_attribute(("type", kind)).write_inner_content(|writer| {
            text(writer, "name", &guest.name)?;
            mib(writer, "memory", guest.memory)?;
            if let Some(most) = self.memory_max {
                writer.create_element("memtune").write_inner_content(|writer| mib(writer, "hard_limit", most))?;
            }
            if guest.mlock {
                writer
                    .create_element("memoryBacking")
                    .write_inner_content(|writer| writer.create_element("locked").write_empty().map(drop))?;
            }
            text(writer, "vcpu", &guest.vcpus.to_string())?;
            if guest.vcpu_cpus.is_some() || self.cpus.is_some() || class.is_some() {
                writer.create_element("cputune").write_inner_content(|writer| {
                    if let Some(cpus) = guest.vcpu_cpus.as_ref().map(ToString::to_string) {
                        for index in (0..guest.vcpus).map(|index| index.to_string()) {
                            let pin = writer.create_element("vcpupin").with_attribute(("vcpu", index.as_str()));
                            pin.with_attribute(("cpuset", cpus.as_str())).write_empty()?;
                        }
                    }
                    if let Some(cpus) = self.cpus {
                        writer
                            .create_element("emulatorpin")
                            .with_attribute(("cpuset", cpus.to_string().as_str()))
                            .write_empty()?;
                    }
                    if let Some((word, priority)) = &class {
                        let all = format!("0-{}", guest.vcpus - 1);
                        let element = writer.create_element("vcpusched").with_attribute(("vcpus", all.as_str()));
                        let element = element.with_attribute(("scheduler", *word));
                        match priority {
                            Some(priority) => element.with_attribute(("priority", priority.as_str())).write_empty()?,
                            None => element.write_empty()?,
                        };
                    }
                    Ok(())
                })?;
            }
            writer.create_element("os").write_inner_content(|writer| {
                let machine = writer.create_element("type").with_attribute(("arch", std::env::consts::ARCH));
                machine.with_attribute(("machine", BOARD)).write_text_content(BytesText::new("hvm"))?;
                if let Some(firmware) = &guest.firmware {
                    let loader = writer.create_element("loader").with_attribute(("readonly", "yes"));
                    loader
                        .with_attribute(("type", "pflash"))
                        .write_text_content(BytesText::new(&self.path(firmware)))?;
                }
                if let Some(variables) = &guest.firmware_variables {
                    text(writer, "nvram", &self.path(variables))?;
                }
                for (name, value) in [("kernel", &guest.kernel), ("initrd", &guest.initrd)] {
                    if let Some(path) = value {
                        text(writer, name, &self.path(path))?;
                    }
                }
                guest.append.iter().try_for_each(|append| text(writer, "cmdline", append))
            })?;
            writer.create_element("features").write_inner_content(|writer| {
                writer.create_element("acpi").write_empty()?;
                if windows && kind == "kvm" {
                    writer.create_element("hyperv").write_inner_content(|writer| {
                        for name in ["relaxed", "vapic", "vpindex", "synic", "stimer", "frequencies"] {
                            writer.create_element(name).with_attribute(("state", "on")).write_empty()?;
                        }
                        let spinlocks = writer.create_element("spinlocks").with_attribute(("state", "on"));
                        spinlocks.with_attribute(("retries", "8191")).write_empty().map(drop)
                    })?;
                }
                Ok(())
            })?;
            let processor = if kind == "kvm" { "host-passthrough" } else { "maximum" };
            writer.create_element("cpu").with_attribute(("mode", processor)).write_empty()?;
            let clock = writer.create_element("clock");
            clock.with_attribute(("offset", if windows { "localtime" } else { "utc" })).write_empty()?;
            text(writer, "on_poweroff", "destroy")?;
            text(writer, "on_crash", "destroy")?;
            writer.create_element("devices").write_inner_content(|writer| {
                if guest.program.starts_with('/') {
                    text(writer, "emulator", &guest.program)?;
                }
                guest.disks.iter().enumerate().try_for_each(|(index, disk)| self.disk(writer, index, disk))?;
                writer.create_element("serial").with_attribute(("type", "pty")).write_empty()?;
                if guest.screen {
                    writer
                        .create_element("input")
                        .with_attributes([("type", "tablet"), ("bus", "usb")])
                        .write_empty()?;
                    let graphics = writer.create_element("graphics").with_attribute(("type", "vnc"));
                    graphics.with_attributes([("autoport", "yes"), ("listen", "127.0.0.1")]).write_empty()?;
                    writer.create_element("video").write_inner_content(|writer| {
                        writer.create_element("model").with_attribute(("type", "vga")).write_empty().map(drop)
                    })?;
                }
                writer.create_element("memballoon").with_attribute(("model", "none")).write_empty().map(drop)
            })?;
            Ok(())
        })?;
        if guest.disks.len() > 1 && (guest.disk_rate.is_some() || guest.disk_operations.is_some()) {
            notes.push("disk_rate and disk_operations bound each disk here, not all together".to_owned());
        }
        let stop = guest.stop_within;
        notes.push(format!(
            "to stop it: press the power button (`virsh shutdown`), and end it after {stop} (`virsh destroy`)"
        ));
        let mut out = String::new();
        for note in &notes {
            out += &format!("<!-- {} -->\n", note.replace("--", "- -"));
        }
        out += &String::from_utf8_lossy(&writer.into_inner());
        out.push('\n');
        Ok(Defined { text: out, notes })
    }

    fn disk(&self, writer: &mut Writer<Vec<u8>>, index: usize, disk: &Path) -> io::Result<()> {
        let (form, windows) = (form(disk), self.guest.profile == Profile::Windows);
        let bus = if windows { "sata" } else { "virtio" };
        let element = writer.create_element("disk").with_attributes([("type", "file"), ("device", "disk")]);
        element.write_inner_content(|writer| {
            writer.create_element("driver").with_attributes([("name", "qemu"), ("type", form)]).write_empty()?;
            writer.create_element("source").with_attribute(("file", self.path(disk).as_str())).write_empty()?;
            let target = format!("{}{}", if windows { "sd" } else { "vd" }, letter(index));
            writer.create_element("target").with_attributes([("dev", target.as_str()), ("bus", bus)]).write_empty()?;
            let bounds = [
                ("total_bytes_sec", self.guest.disk_rate.map(|rate| rate.0)),
                ("total_iops_sec", self.guest.disk_operations.map(u64::from)),
            ];
            if bounds.iter().any(|(_, most)| most.is_some()) {
                writer.create_element("iotune").write_inner_content(|writer| {
                    for (name, most) in bounds.iter().filter_map(|(name, most)| Some((name, most.as_ref()?))) {
                        writer.create_element(*name).write_text_content(BytesText::new(&most.to_string()))?;
                    }
                    Ok(())
                })?;
            }
            Ok(())
        })?;
        Ok(())
    }

    /// A configuration for `xl create`.
    #[must_use]
    pub fn xen(&self) -> Defined {
        let guest = self.guest;
        let windows = guest.profile == Profile::Windows;
        let mut notes = self.notes();
        // A kernel that is started directly needs no emulated board.
        let kind = if guest.kernel.is_some() && !windows { "pvh" } else { "hvm" };
        let mut lines = vec![
            format!("name = {}", quoted(&guest.name)),
            format!("type = \"{kind}\""),
            format!("memory = {}", guest.memory.0 >> 20),
            format!("maxmem = {}", guest.memory.0 >> 20),
            format!("vcpus = {}", guest.vcpus),
        ];
        if let Some(cpus) = &guest.vcpu_cpus {
            lines.push(format!("cpus = {}", quoted(&cpus.to_string())));
        }
        let files: [(&str, &Option<PathBuf>); 2] = [("kernel", &guest.kernel), ("ramdisk", &guest.initrd)];
        for (key, path) in files {
            lines.extend(path.iter().map(|path| format!("{key} = {}", quoted(&self.path(path)))));
        }
        lines.extend(guest.append.iter().map(|append| format!("cmdline = {}", quoted(append))));
        if guest.firmware.is_some() {
            lines.push("bios = \"ovmf\"".to_owned());
            notes.push("firmware is Xen's own OVMF, which keeps no variables".to_owned());
        }
        let disk = |(index, disk): (usize, &PathBuf)| {
            let vdev = format!("{}{}", if windows { "hd" } else { "xvd" }, letter(index));
            let form = form(disk);
            // `target` must be last: it takes the rest of the text, including commas.
            format!("  {},", quoted(&format!("format={form}, vdev={vdev}, access=rw, target={}", self.path(disk))))
        };
        if !guest.disks.is_empty() {
            lines.push("disk = [".to_owned());
            lines.extend(guest.disks.iter().enumerate().map(disk));
            lines.push("]".to_owned());
        }
        lines.push("vif = []".to_owned());
        if kind == "hvm" {
            lines.push("serial = \"pty\"".to_owned());
            lines.push(format!("vnc = {}", u8::from(guest.screen)));
        } else if guest.screen {
            notes.push("a PVH domain has no screen".to_owned());
        }
        if windows {
            lines.push("viridian = 1".to_owned());
            lines.push("localtime = 1".to_owned());
        }
        lines.extend(
            ["on_poweroff = \"destroy\"", "on_reboot = \"restart\"", "on_crash = \"destroy\""].map(str::to_owned),
        );
        if guest.vcpu_class.is_some() {
            notes.push(
                "vcpu_class: Xen's schedulers have no classes; a separate CPU pool (`xl cpupool-create`, `pool = \"…\"`) excludes other guests".to_owned(),
            );
        }
        if guest.disk_rate.is_some() || guest.disk_operations.is_some() {
            notes.push(
                "disk_rate, disk_operations: Xen bounds no disk; bound the back-end's control group in dom0".to_owned(),
            );
        }
        if self.memory_max.is_some() {
            notes.push("memory_max: a domain has only `memory`; QEMU's memory belongs to dom0".to_owned());
        }
        if guest.accel != Accel::Auto {
            notes.push("accel: Xen runs it by the processor".to_owned());
        }
        let stop = guest.stop_within;
        notes.push(format!("to stop it: shut it down (`xl shutdown`), and end it after {stop} (`xl destroy`)"));
        let comments = notes.iter().map(|note| format!("# {note}\n"));
        let text = comments.chain(lines.iter().map(|line| format!("{line}\n"))).collect();
        Defined { text, notes }
    }
}

/// A scheduling class in libvirt's notation.
fn scheduler(class: &Policy) -> Option<(&'static str, Option<String>)> {
    match class {
        Policy::Fifo(priority) => Some(("fifo", Some(priority.0.to_string()))),
        Policy::Rr(priority) => Some(("rr", Some(priority.0.to_string()))),
        Policy::Batch { .. } => Some(("batch", None)),
        Policy::Idle => Some(("idle", None)),
        // libvirt has no setting for a nice value.
        Policy::Other { .. } | Policy::Deadline(_) => None,
    }
}

/// Drive letters: a to z, aa and so on.
fn letter(index: usize) -> String {
    let last = (b'a' + (index % 26) as u8) as char;
    if index < 26 { last.to_string() } else { format!("{}{last}", letter(index / 26 - 1)) }
}

/// A quoted text for `xl`, with C escapes.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if letter.is_control() => out.push_str(&format!("\\x{:02x}", u32::from(letter).min(0xff))),
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::guest;
    use base::Priority;
    use proptest::prelude::*;

    fn definition(guest: &Guest) -> Definition<'_> {
        Definition { guest, folder: Path::new("/plants/line"), cpus: None, memory_max: None }
    }

    fn whole() -> Guest {
        Guest {
            vcpus: 3,
            mlock: true,
            kernel: Some("vmlinuz".into()),
            initrd: Some("/boot/initrd & more".into()),
            append: Some("console=ttyS0 say=\"<a>\"".into()),
            disks: vec!["a.qcow2".into(), "/d/b,c.img".into()],
            disk_rate: Some(Size(1 << 20)),
            network: Network::User,
            allow: vec!["80=127.0.0.1:8900".parse().unwrap()],
            vcpu_cpus: Some("1-2".parse().unwrap()),
            vcpu_class: Some(Policy::Fifo(Priority(10))),
            screen: true,
            accel: Accel::Kvm,
            ..guest()
        }
    }

    #[test]
    fn the_libvirt_domain_has_the_settings_of_the_plant_and_notes_unsupported_ones() {
        let (guest, cpus) = (whole(), "0".parse().unwrap());
        let more = Definition { cpus: Some(&cpus), memory_max: Some(Size(300 << 20)), ..definition(&guest) };
        let Defined { text, notes } = more.libvirt().unwrap();
        for part in [
            "<domain type=\"kvm\">",
            "<memory unit=\"MiB\">256</memory>",
            "<hard_limit unit=\"MiB\">300</hard_limit>",
            "<locked/>",
            "<vcpupin vcpu=\"2\" cpuset=\"1-2\"/>",
            "<emulatorpin cpuset=\"0\"/>",
            "<vcpusched vcpus=\"0-2\" scheduler=\"fifo\" priority=\"10\"/>",
            "<kernel>/plants/line/vmlinuz</kernel>",
            "<initrd>/boot/initrd &amp; more</initrd>",
            "say=&quot;&lt;a&gt;&quot;",
            "<source file=\"/plants/line/a.qcow2\"/>",
            "<target dev=\"vdb\" bus=\"virtio\"/>",
            "<total_bytes_sec>1048576</total_bytes_sec>",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("<interface"), "{text}");
        for part in ["80=127.0.0.1:8900 and nowhere else", "bound each disk here", "after 30s"] {
            assert!(notes.iter().any(|note| note.contains(part)) && text.contains(part), "{part}: {notes:?}");
        }
    }

    #[test]
    fn xens_domain_is_pvh_with_a_kernel_and_hvm_with_a_disk_alone() {
        let Defined { text, notes } = definition(&whole()).xen();
        for part in [
            "type = \"pvh\"",
            "memory = 256\nmaxmem = 256\nvcpus = 3\ncpus = \"1-2\"",
            "cmdline = \"console=ttyS0 say=\\\"<a>\\\"\"",
            "\"format=raw, vdev=xvdb, access=rw, target=/d/b,c.img\"",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(notes.iter().any(|note| note.contains("CPU pool")), "{notes:?}");
        let windows = Guest { profile: Profile::Windows, disks: vec!["c.qcow2".into()], ..guest() };
        let text = definition(&windows).xen().text;
        for part in ["type = \"hvm\"", "vdev=hda", "viridian = 1", "localtime = 1"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn drives_have_letters_beyond_z() {
        assert_eq!([0, 25, 26, 27, 701, 702].map(letter), ["a", "z", "aa", "ab", "zz", "aaa"]);
    }

    proptest! {
        #[test]
        fn names_of_files_are_escaped_in_definitions(name in "[ -~]{1,20}") {
            let guest = Guest { kernel: Some(name.clone().into()), append: Some(name.clone()), disks: vec![name.into()], ..guest() };
            let Defined { text, .. } = definition(&guest).libvirt().unwrap();
            let mut reader = quick_xml::Reader::from_str(&text);
            while reader.read_event().unwrap() != quick_xml::events::Event::Eof {}
            let Defined { text, .. } = definition(&guest).xen();
            // Each unescaped quotation mark begins or ends a text, and all texts of a line end in that line.
            for line in text.lines().filter(|line| !line.starts_with('#')) {
                let mut inside = false;
                let mut escaped = false;
                for letter in line.chars() {
                    inside ^= letter == '"' && !escaped;
                    escaped = letter == '\\' && !escaped;
                }
                prop_assert!(!inside, "{}", line);
            }
        }
    }
}
