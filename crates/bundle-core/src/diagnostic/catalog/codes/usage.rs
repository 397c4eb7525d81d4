//! Diagnostic codes of command-line arguments and input files.

area! {
    BAD_ARGUMENT = "BUNDLE-USAGE-001", Usage, "invalid argument", "The value of an argument is invalid, or the argument cannot be combined with another argument. The message names the argument, and the hint gives a valid form.";
    FILE_UNREADABLE = "BUNDLE-USAGE-002", Failed, "cannot read a file", "The file does not exist, its permissions deny reading, or it is larger than the limit that the message names. Nothing was changed.";
    FILE_UNWRITABLE = "BUNDLE-USAGE-003", Failed, "cannot write a file", "Possible causes: the target already exists, the target is read-only, or the disk is full. Files are written completely or not at all.";
    NO_PASSWORD = "BUNDLE-USAGE-004", Usage, "no usable password for the private key", "Private keys are encrypted with a password. Set BUNDLE_PASSWORD or COSIGN_PASSWORD, pass the password on standard input with --password-stdin, or enter the password at the terminal.";
    NO_RESOURCES = "BUNDLE-USAGE-005", Failed, "the operating system is out of resources", "The operating system did not provide a thread, a file descriptor or memory. Nothing was changed. Close other programs or increase the limits (ulimit), then retry.";
    INTERRUPTED = "BUNDLE-USAGE-006", Unknown, "the command was interrupted", "The command received Ctrl-C or a termination signal. The command removed its temporary files. The target of the command does not contain an incomplete file.";
    NO_PROGRAM = "BUNDLE-USAGE-008", Failed, "required external command not found", "The command searches PATH for helm to render charts, for kubectl to build kustomizations, and for the plugin sigstore-kms-NAME for keys of the form NAME://RESOURCE. The hint explains how to install the missing command.";
    PROGRAM_FAILED = "BUNDLE-USAGE-009", Failed, "an external command failed", "The message contains the output of the external command, or the reason why the command could not run. An external command is stopped after one minute, or when its output exceeds 32 MiB (256 KiB for KMS plugins).";
}
