//! Diagnostic codes of command-line arguments and input files.

area! {
    BAD_ARGUMENT = "BUNDLE-USAGE-001", Usage, "an argument cannot be used", "The argument is understood, but not together with the others or not with this value. The message names it and the hint says what would work.";
    FILE_UNREADABLE = "BUNDLE-USAGE-002", Failed, "a file cannot be read", "The file does not exist, may not be read, or is larger than what can sensibly be meant. Nothing was changed.";
    FILE_UNWRITABLE = "BUNDLE-USAGE-003", Failed, "a file cannot be written", "The target exists already, is read-only, or the disk is full. A partly written file is never left behind.";
    NO_PASSWORD = "BUNDLE-USAGE-004", Usage, "there is no usable password", "A private key is encrypted under a password, which comes from BUNDLE_PASSWORD, COSIGN_PASSWORD, standard input with --password-stdin, or the terminal.";
    NO_RESOURCES = "BUNDLE-USAGE-005", Failed, "the system refuses what the program needs", "A thread, a file descriptor or memory could not be had from the operating system. Nothing was changed.";
    INTERRUPTED = "BUNDLE-USAGE-006", CannotTell, "the work was interrupted", "Somebody pressed Ctrl-C or ended the program. What had been begun was cleared away; nothing stands half-done under the name of the target.";
    NO_PROGRAM = "BUNDLE-USAGE-008", Failed, "a program of others is missing", "Charts are rendered by helm and kustomizations by kubectl, the real ones, and keys behind NAME:// are reached through the program sigstore-kms-NAME; each is looked for on PATH. The hint says how to get it.";
    PROGRAM_FAILED = "BUNDLE-USAGE-009", Failed, "a program of others failed", "What it said is in the message. It is given a minute and 32 MiB of output (the plugin of a key service 256 KiB), and it is never left running.";
}
