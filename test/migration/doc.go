// Package migration tests the guide docs/envtest-migration.md on the project it
// is about, examples/kubebuilder, which is a module of its own: the commands of
// the guide and of the project's README are run, with what `sailplane envtest
// install` writes in a folder of the test, and the guide's Go is in the project.
package migration
