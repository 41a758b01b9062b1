// Package streamed measures how many bytes a second come out of a terminal that is a Go
// function, beside what k8s.io/cri-streaming, on which it stands, does alone:
//
//	go test -C test -run - -bench Exec -count 6 ./bench/streamed
package streamed
