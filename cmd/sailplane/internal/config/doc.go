// Package config is the configuration of the program: a file of kind Server, the
// environment, and flags. [Load] joins them into one document, in which every value
// knows where it comes from, and decodes it once: so a mistake names the file and
// the line, the variable, or the flag.
//
// A setting is a field of [Server], its default and its description in server.yaml,
// and a row of [Flags] if it has a flag.
package config
