// Command minimal is the program of the project's README, byte for byte: built-in
// resources, custom resources and aggregation on an embedded etcd.
package main
