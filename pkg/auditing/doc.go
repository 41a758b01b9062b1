// Package auditing records who asked for what, and what came of it.
//
// [Log] writes events to a file or to standard output, [Webhook] sends them to
// another server; a plane may have both, and several of each under different
// names. Events are those of audit.k8s.io/v1:
// https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/
//
// # What is recorded
//
// A policy decides, rule by rule: the first that matches a request gives it a
// level, and a request that none matches is not recorded. It is written in Go
// (Policy) or in a file of kind Policy (PolicyFile); without either [Default]
// holds: writes, reads of Secrets and backups, with their metadata and without their
// bodies. A policy that is not valid, or a file with a field that does not exist, is an
// error of Build. The file is followed: a change is in force within seconds, and one
// that cannot be used is logged and changes nothing.
//
// The requests of the server's own controllers are recorded as well, as those
// of user system:apiserver.
//
// # What stays
//
// A log has a size, and what is new removes what is old. So events are cut (MaxEvent),
// callers whom the server does not know have a budget (StrangerBytes), and nobody has
// more of the log than is left for others (Keep). What is over that is counted in
// summaries. A chain of hashes (Chain) shows what is missing.
//
// # When
//
// Back ends run before the first request is taken. When the server stops they
// are shut down after the last one, and deliver what they still hold.
package auditing
