//! resctrl: groups limited to some ways of the last-level cache.

use super::{Answer, FakeKernel, cpus, line};
use base::CpuSet;
use rustix::io::Errno;

const TOP: &str = "/sys/fs/resctrl";

/// Group of a path, and the name of the file in it.
fn split(path: &str) -> Option<(&str, &str)> {
    let (dir, name) = path.rsplit_once('/')?;
    let group = dir.strip_prefix(TOP)?;
    (!group.starts_with("/info") && group.matches('/').count() <= 1).then_some((dir, name))
}

/// A directory directly below the root that may be a group.
fn group(path: &str) -> Option<&str> {
    let name = path.strip_prefix(TOP)?.strip_prefix('/')?;
    (!name.is_empty() && !name.contains('/') && name != "info").then_some(path)
}

impl FakeKernel {
    fn cache_info(&self, name: &str) -> Option<u64> {
        let text = self.files.get(&format!("{TOP}/info/L3/{name}"))?;
        u64::from_str_radix(text.trim(), if name == "cbm_mask" { 16 } else { 10 }).ok()
    }

    /// Writes a file of a group. Only the CPUs and the schemata are writable.
    pub(super) fn write_cache(&mut self, path: &str, value: &str) -> Option<Answer<()>> {
        let (dir, name) = split(path)?;
        if !self.files.contains_key(path) {
            return Some(Err(Errno::NOENT));
        }
        Some(match name {
            "cpus_list" => self.set_cache_cpus(dir, value),
            "schemata" if value.starts_with("MB:") => self.set_bandwidth(path, value),
            "schemata" => self.set_ways(path, value),
            _ => Err(Errno::ACCESS),
        })
    }

    /// CPUs assigned to a group are removed from the others. CPUs removed from a group go to the root.
    fn set_cache_cpus(&mut self, dir: &str, value: &str) -> Answer<()> {
        let wanted = cpus(value)?;
        if !wanted.is_subset(&self.online) {
            return Err(Errno::INVAL);
        }
        let groups: Vec<String> = self
            .files
            .keys()
            .filter(|path| split(path).is_some_and(|(_, name)| name == "cpus_list"))
            .cloned()
            .collect();
        let own = format!("{dir}/cpus_list");
        let before = cpus(&self.files[&own])?;
        for group in groups {
            let mut now = cpus(&self.files[&group])?.minus(&wanted);
            if group == own {
                now = wanted;
            } else if group == format!("{TOP}/cpus_list") {
                now = now.or(&before.minus(&wanted));
            }
            self.files.insert(group, line(&now));
        }
        Ok(())
    }

    /// Sets the way masks of some caches. Each must be contiguous, of the minimum size, and of existing ways.
    fn set_ways(&mut self, path: &str, value: &str) -> Answer<()> {
        let (all, least) = (self.cache_info("cbm_mask").unwrap_or(0), self.cache_info("min_cbm_bits").unwrap_or(1));
        let now = self.files[path].clone();
        let mut lines: Vec<String> = now.lines().map(str::to_owned).collect();
        let found = lines.iter_mut().find(|line| line.trim().starts_with("L3:")).ok_or(Errno::INVAL)?;
        let mut ways: Vec<(String, String)> = pairs(found.trim().trim_start_matches("L3:")).ok_or(Errno::INVAL)?;
        for (id, mask) in value.trim().strip_prefix("L3:").and_then(pairs).ok_or(Errno::INVAL)? {
            let bits = u64::from_str_radix(&mask, 16).map_err(|_| Errno::INVAL)?;
            let packed = bits >> bits.trailing_zeros().min(63);
            if bits == 0 || packed & (packed + 1) != 0 || u64::from(bits.count_ones()) < least || bits & !all != 0 {
                return Err(Errno::INVAL);
            }
            let old = ways.iter_mut().find(|(known, _)| *known == id).ok_or(Errno::INVAL)?;
            // The kernel prints as many digits as the widest mask has.
            old.1 = format!("{bits:0width$x}", width = format!("{all:x}").len());
        }
        let text: Vec<String> = ways.iter().map(|(id, mask)| format!("{id}={mask}")).collect();
        *found = format!("    L3:{}", text.join(";"));
        self.files.insert(path.to_owned(), lines.join("\n") + "\n");
        Ok(())
    }

    /// Sets the memory bandwidth of some caches in percent, rounded up to the granularity.
    fn set_bandwidth(&mut self, path: &str, value: &str) -> Answer<()> {
        let info = |name: &str| self.files.get(&format!("{TOP}/info/MB/{name}"))?.trim().parse::<u32>().ok();
        let (Some(least), Some(step)) = (info("min_bandwidth"), info("bandwidth_gran")) else {
            return Err(Errno::INVAL);
        };
        let mut lines: Vec<String> = self.files[path].lines().map(str::to_owned).collect();
        let found = lines.iter_mut().find(|line| line.trim().starts_with("MB:")).ok_or(Errno::INVAL)?;
        let mut shares = pairs(found.trim().trim_start_matches("MB:")).ok_or(Errno::INVAL)?;
        for (id, percent) in value.trim().strip_prefix("MB:").and_then(pairs).ok_or(Errno::INVAL)? {
            let percent: u32 = percent.parse().map_err(|_| Errno::INVAL)?;
            if percent < least || percent > 100 {
                return Err(Errno::INVAL);
            }
            let old = shares.iter_mut().find(|(known, _)| *known == id).ok_or(Errno::INVAL)?;
            old.1 = percent.next_multiple_of(step.max(1)).min(100).to_string();
        }
        let text: Vec<String> = shares.iter().map(|(id, percent)| format!("{id}={percent:>3}")).collect();
        *found = format!("    MB:{}", text.join(";"));
        self.files.insert(path.to_owned(), lines.join("\n") + "\n");
        Ok(())
    }

    /// Creates a group with all ways and no CPU. The number of groups is limited.
    pub(super) fn make_cache_group(&mut self, path: &str) -> Option<Answer<()>> {
        let dir = group(path)?;
        let groups = self.files.keys().filter(|path| split(path).is_some_and(|(_, name)| name == "cpus_list")).count();
        let limit = self.cache_info("num_closids")?;
        Some(if self.files.contains_key(&format!("{dir}/cpus_list")) {
            Err(Errno::EXIST)
        } else if groups as u64 >= limit {
            Err(Errno::NOSPC)
        } else {
            let all = self.cache_info("cbm_mask").unwrap_or(0);
            let ids: Vec<String> = self.files[&format!("{TOP}/schemata")]
                .lines()
                .find_map(|line| pairs(line.trim().strip_prefix("L3:")?))
                .unwrap_or_default()
                .into_iter()
                .map(|(id, _)| format!("{id}={all:x}"))
                .collect();
            self.files.insert(format!("{dir}/cpus_list"), line(&CpuSet::EMPTY));
            let bandwidth = match self.files.contains_key(&format!("{TOP}/info/MB/bandwidth_gran")) {
                true => format!(
                    "    MB:{}\n",
                    ids.iter()
                        .map(|id| id.split('=').next().unwrap_or_default().to_owned() + "=100")
                        .collect::<Vec<_>>()
                        .join(";")
                ),
                false => String::new(),
            };
            self.files.insert(format!("{dir}/schemata"), bandwidth + &format!("    L3:{}\n", ids.join(";")));
            Ok(())
        })
    }

    /// Removes a group. Its CPUs return to the root.
    pub(super) fn remove_cache_group(&mut self, path: &str) -> Option<Answer<()>> {
        let dir = group(path)?;
        let list = format!("{dir}/cpus_list");
        if !self.files.contains_key(&list) {
            return Some(Err(Errno::NOENT));
        }
        let answer = self.set_cache_cpus(dir, "");
        self.files.remove(&list);
        self.files.remove(&format!("{dir}/schemata"));
        Some(answer)
    }
}

/// Parses `0=fff;1=fff`.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    text.split(';')
        .map(|pair| pair.split_once('=').map(|(id, mask)| (id.trim().to_owned(), mask.trim().to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MachineText;

    const MACHINE: &str = "\
/proc/sys/kernel/osrelease: 6.12.0
/sys/devices/system/cpu/online: 0-3
/sys/fs/resctrl/cpus_list: 0-3
/sys/fs/resctrl/schemata:
|    MB:0=100
|    L3:0=fff
/sys/fs/resctrl/info/L3/cbm_mask: fff
/sys/fs/resctrl/info/L3/min_cbm_bits: 2
/sys/fs/resctrl/info/L3/num_closids: 2
";

    #[test]
    fn cache_masks_must_be_contiguous_and_the_number_of_groups_is_limited() {
        let mut kernel = FakeKernel::boot(&MachineText::parse(MACHINE).unwrap());
        let top = "/sys/fs/resctrl/schemata";
        for refused in ["L3:0=0", "L3:0=5", "L3:0=1", "L3:0=1000", "L3:1=ff", "L3:0=x", "0=ff", ""] {
            assert_eq!(kernel.write(top, refused), Err(Errno::INVAL), "{refused}");
        }
        kernel.write(top, "L3:0=0f0").unwrap();
        assert_eq!(kernel.read(top).unwrap(), "    MB:0=100\n    L3:0=0f0\n");
        kernel.make_dir("/sys/fs/resctrl/a").unwrap();
        assert_eq!(kernel.make_dir("/sys/fs/resctrl/a"), Err(Errno::EXIST));
        assert_eq!(kernel.make_dir("/sys/fs/resctrl/b"), Err(Errno::NOSPC));
        assert_eq!(kernel.read("/sys/fs/resctrl/a/schemata").unwrap(), "    L3:0=fff\n");
        kernel.write("/sys/fs/resctrl/a/cpus_list", "3,1").unwrap();
        assert_eq!(kernel.write("/sys/fs/resctrl/a/cpus_list", "7"), Err(Errno::INVAL));
        assert_eq!(kernel.read("/sys/fs/resctrl/cpus_list").unwrap(), "0,2\n");
        kernel.remove_dir("/sys/fs/resctrl/a").unwrap();
        assert_eq!(kernel.read("/sys/fs/resctrl/cpus_list").unwrap(), "0-3\n");
        assert_eq!(kernel.remove_dir("/sys/fs/resctrl/a"), Err(Errno::NOENT));
    }
}
