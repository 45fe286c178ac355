//! A message server, equipment managers, and requests of a user.

use crate::process::Running;
use crate::{Folder, eventually, fresh, tahti};
use std::path::Path;
use std::process::Output;

/// A message server with a unique name, and a folder for the managers' tables.
pub struct Site {
    /// Name of the server.
    pub server: String,
    /// Folder of tables and scripts.
    pub folder: Folder,
    /// The message server, if it is running.
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

    /// Restarts the message server.
    pub fn serve(&mut self) {
        self.messages = None;
        let mut command = tahti();
        command.args(["msg", "serve", "--name", &self.server]);
        self.messages = Some(Running::until(&mut command, "serving"));
    }

    /// Starts an equipment manager that serves a table.
    pub fn manager(&self, file: &Path) -> Running {
        self.manager_with(file, &[])
    }

    /// As [`manager`](Self::manager), with additional environment variables.
    pub fn manager_with(&self, file: &Path, env: &[(&str, &str)]) -> Running {
        let mut command = tahti();
        command.args(["em", "serve", "--server", &self.server]).arg(file).envs(env.iter().copied());
        Running::until(&mut command, "serves")
    }

    /// Runs a command. Returns whether it succeeded, and both outputs.
    pub fn say(&self, words: &[&str]) -> (bool, String) {
        let output = tahti().args(words).env("TAHTI_MESSAGES", &self.server).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap().trim().to_owned())
    }

    /// Sends a line as a user does.
    pub fn send(&self, line: &str) -> Output {
        tahti().args(["msg", "send", "--server", &self.server, line]).output().unwrap()
    }

    /// Sends a line and returns the output, or the error message.
    pub fn ask(&self, line: &str) -> String {
        let output = self.send(line);
        let text = if output.status.success() { output.stdout } else { output.stderr };
        String::from_utf8(text).unwrap().trim().to_owned()
    }

    /// Sends a line until the answer is as required.
    pub fn until(&self, line: &str, wanted: impl Fn(&str) -> bool) {
        let mut last = String::new();
        eventually(&format!("{line} answers as wanted"), || {
            last = self.ask(line);
            wanted(&last)
        });
    }
}
