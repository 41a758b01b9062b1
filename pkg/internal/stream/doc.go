// Package stream serves terminals and forwarded ports that are Go functions, as a kubelet
// serves those of containers: over SPDY with k8s.io/cri-streaming, and over WebSockets with
// what k8s.io/apiserver has to speak v5.channel.k8s.io and to tunnel SPDY. The functions
// get a context that ends with the connection.
package stream
