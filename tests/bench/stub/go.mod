module kbatch.dev/stub

go 1.26
