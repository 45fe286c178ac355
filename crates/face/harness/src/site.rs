//! A message server, equipment managers, and what a user asks of them.

use crate::process::Running;
use crate::{Folder, eventually, fresh, tahti};
use std::path::Path;
use std::process::Output;

/// A message server of its own name with a folder for tables of managers.
pub struct Site {
    /// Its name.
    pub server: String,
    /// Where tables and scripts lie.
    pub folder: Folder,
    /// The message server, while it runs.
    pub messages: Option<Running>,
}

impl Default for Site {
    fn default() -> Self {
        Self::new()
    }
}

impl Site {
    /// Starts a message server.
    pub fn new() -> Self {
        let mut site = Self { server: fresh("em"), folder: Folder::new(), messages: None };
        site.serve();
        site
    }

    /// Starts the message server again.
    pub fn serve(&mut self) {
        self.messages = None;
        let mut command = tahti();
        command.args(["msg", "serve", "--name", &self.server]);
        self.messages = Some(Running::until(&mut command, "serving"));
    }

    /// An equipment manager that serves a table.
    pub fn manager(&self, file: &Path) -> Running {
        self.manager_with(file, &[])
    }

    /// A manager with more in its environment.
    pub fn manager_with(&self, file: &Path, env: &[(&str, &str)]) -> Running {
        let mut command = tahti();
        command.args(["em", "serve", "--server", &self.server]).arg(file).envs(env.iter().copied());
        Running::until(&mut command, "serves")
    }

    /// What a command prints on both of its outputs, and whether it went well.
    pub fn say(&self, words: &[&str]) -> (bool, String) {
        let output = tahti().args(words).env("TAHTI_MESSAGES", &self.server).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap().trim().to_owned())
    }

    /// Sends a line as a user does.
    pub fn send(&self, line: &str) -> Output {
        tahti().args(["msg", "send", "--server", &self.server, line]).output().unwrap()
    }

    /// What is printed, or what is said on stderr.
    pub fn ask(&self, line: &str) -> String {
        let output = self.send(line);
        let text = if output.status.success() { output.stdout } else { output.stderr };
        String::from_utf8(text).unwrap().trim().to_owned()
    }

    /// Sends a line until the answer is as wanted.
    pub fn until(&self, line: &str, wanted: impl Fn(&str) -> bool) {
        let mut last = String::new();
        eventually(&format!("{line} answers as wanted"), || {
            last = self.ask(line);
            wanted(&last)
        });
    }
}
