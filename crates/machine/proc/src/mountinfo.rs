//! `/proc/PID/mountinfo`: what is mounted where.

use std::borrow::Cow;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount<'a> {
    /// The directory of the file system that is shown at the mount point.
    pub root: Cow<'a, str>,
    /// The mount point.
    pub point: Cow<'a, str>,
    /// Options of this mount.
    pub options: &'a str,
    /// The file system's type, such as `cgroup2`.
    pub kind: &'a str,
    /// Options of the file system; for `cgroup` its controllers.
    pub super_options: &'a str,
}

impl Mount<'_> {
    /// Whether the file system has an option.
    #[must_use]
    pub fn has(&self, option: &str) -> bool {
        self.super_options.split(',').any(|name| name == option)
    }
}

/// All mounts; lines of another form are passed over.
pub fn mounts(text: &str) -> impl Iterator<Item = Mount<'_>> {
    text.lines().filter_map(|line| {
        let (head, tail) = line.split_once(" - ")?;
        let mut head = head.split(' ').skip(3);
        let (root, point, options) = (head.next()?, head.next()?, head.next()?);
        let mut tail = tail.split(' ');
        let (kind, _source, super_options) = (tail.next()?, tail.next()?, tail.next()?);
        Some(Mount { root: plain(root), point: plain(point), options, kind, super_options })
    })
}

/// Blanks and backslashes are written in octal: `\040`.
fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        match (byte, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cgroup_mounts_are_distinguished_by_type_and_controllers() {
        let text = "13:34 ignored\n\
            13 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime shared:9 - cgroup cgroup rw,cpuset\n\
            20 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n\
            21 31 8:1 /a\\040b /mnt/x\\040y rw - ext4 /dev/sda1 rw,discard\n";
        let all: Vec<_> = mounts(text).collect();
        assert_eq!(all.len(), 3);
        assert!(all[0].has("cpuset") && all[0].kind == "cgroup");
        assert_eq!((all[1].kind, &*all[1].point), ("cgroup2", "/sys/fs/cgroup/unified"));
        assert_eq!((&*all[2].root, &*all[2].point), ("/a b", "/mnt/x y"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9a-z /\\\\-]{0,80}") {
            mounts(&text).for_each(drop);
            plain(&text);
        }
    }
}
