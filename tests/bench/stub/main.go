// A stub of an API server: what schedulers can do when the server costs nothing.
//
// It keeps objects in memory, answers lists, watches, creations, binds and status writes over TLS as a real one does,
// and sends the events of them at once. It has no admission, no controllers and no rights; its kubelets are timers.
// At the path /stub it makes nodes and a stream of gangs by itself, and tells what became of them.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"flag"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"time"
)

const kubeconfig = `apiVersion: v1
kind: Config
current-context: stub
contexts: [{name: stub, context: {cluster: stub, user: stub}}]
clusters: [{name: stub, cluster: {server: "https://%s", certificate-authority-data: %s}}]
users: [{name: stub, user: {token: %s}}]
`

func main() {
	target := flag.String("kubeconfig", "", "file that is written once the server listens")
	flag.Parse()
	certificate, authority, err := certificates()
	if err != nil {
		log.Fatal(err)
	}
	raw := make([]byte, 32)
	_, _ = rand.Read(raw)
	server := &Server{Store: newStore(), token: hex.EncodeToString(raw)}
	for _, name := range []string{"default", "kube-system", "bench"} {
		if _, err := server.made(server.table("", "v1", "namespaces"), "", Map{"metadata": Map{"name": name}}); err != nil {
			log.Fatal(err)
		}
	}
	queue := Map{"metadata": Map{"name": "default"}, "spec": Map{"weight": 1.0}}
	if _, err := server.made(server.table(batchGroup, "v1alpha1", "queues"), "", queue); err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	content := fmt.Sprintf(kubeconfig, listener.Addr(), base64.StdEncoding.EncodeToString(authority), server.token)
	if err := os.WriteFile(*target+".new", []byte(content), 0o600); err != nil {
		log.Fatal(err)
	}
	if err := os.Rename(*target+".new", *target); err != nil {
		log.Fatal(err)
	}
	serving := &http.Server{
		Handler:           server,
		ReadHeaderTimeout: 30 * time.Second,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{*certificate}, MinVersion: tls.VersionTLS12},
	}
	log.Fatal(serving.ServeTLS(listener, "", ""))
}

// certificates are one for this process, and the authority that signed it: itself.
func certificates() (*tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "stub"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, nil, err
	}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})
	return &tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: key}, authority, nil
}
